"""A checksum of what an engine saw and sampled, so that the driver can prove that nothing was encoded again."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from rllib_agentic.trajectory.row import Row
from rllib_agentic.trajectory.turn import Ids

ENGINE_CHECKSUM = "engine_checksum"
"""Its place in the metrics of a trajectory."""


def checksum_turn(before: int, context_ids: Ids, action_ids: Ids) -> int:
    """The checksum after one more call of the engine.

    Args:
        before: the checksum of the calls so far; 0 at the start of an episode.
        context_ids: the whole context that the engine was given, int32 ``[T]``.
        action_ids: what it sampled, int32 ``[A]``.
    """
    seen = zlib.crc32(np.ascontiguousarray(context_ids, np.int32).tobytes(), before)
    return zlib.crc32(np.ascontiguousarray(action_ids, np.int32).tobytes(), seen)


def checksum_rows(rows: Sequence[Row]) -> int:
    """The same from what is trained: the rows of one trajectory, in order.

    Example:
        >>> from rllib_agentic.trajectory.row import Row
        >>> ids, mask = np.array([5, 6, 7], np.int32), np.array([False, True, True])
        >>> zeros = np.zeros(3, np.float32)
        >>> row = Row(ids, mask, zeros, np.array([-1, 0, 0], np.int32), np.array([-1, 0, 0], np.int32), zeros, zeros)
        >>> checksum_rows([row]) == checksum_turn(0, ids[:1], ids[1:])
        True
    """
    found = 0
    for row in rows:
        turns, starts, counts = np.unique(row.turn_index, return_index=True, return_counts=True)
        for turn, start, count in zip(turns.tolist(), starts.tolist(), counts.tolist(), strict=True):
            if turn >= 0:
                found = checksum_turn(found, row.token_ids[:start], row.token_ids[start : start + count])
    return found
