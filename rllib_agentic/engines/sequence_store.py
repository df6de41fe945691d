"""Cached sequences: one a live episode, found again by its id, shared between equal prompts, bounded in tokens."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from rllib_agentic.engines.ragged_attention import KVCache
from rllib_agentic.trajectory.turn import Ids

_BLOCK = 16
_BLOCK_BYTES = 4 * _BLOCK


class CachedSequence:
    """Token ids whose keys and values are cached: ``ids[:length]``.

    Attributes:
        kv: the keys and values.
        length: how many tokens are cached.
        prompt: the context that this sequence was admitted with; others may copy its cached part.
        reserved: how many tokens it may grow to in the turn that is running; 0 when idle.
    """

    __slots__ = ("_buffer", "_keys", "kv", "length", "prompt", "reserved")

    def __init__(self) -> None:
        self.kv = KVCache()
        self.length = 0
        self.prompt: Ids = np.zeros(0, np.int32)
        self.reserved = 0
        self._buffer: Ids = np.zeros(64, np.int32)
        self._keys: list[int] = []

    @property
    def ids(self) -> Ids:
        """The cached ids, int32 ``[length]``."""
        return self._buffer[: self.length]

    def extend(self, ids: Ids) -> None:
        """Note that the cache now holds these ids too."""
        end = self.length + len(ids)
        if end > len(self._buffer):
            self._buffer = np.resize(self._buffer, 2 * end)
        self._buffer[self.length : end] = ids
        self.length = end


class SequenceStore:
    """Finds, shares, and forgets cached sequences.

    Two sequences never share memory: a prompt that another sequence holds is copied, which costs far less than a
    prefill. Shared prompts are looked up by a hash chain over blocks of 16 ids and compared id by id, so a hash
    collision costs time, never truth.

    Args:
        max_tokens: bound on cached tokens, running turns' reservations included. Idle episodes are forgotten, least
            recently used first; they are prefilled again when they return.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.evictions = 0
        self._idle: OrderedDict[str, CachedSequence] = OrderedDict()
        self._by_block: dict[int, CachedSequence] = {}
        self._idle_tokens = 0
        self._reserved_tokens = 0

    @property
    def cached_tokens(self) -> int:
        """Tokens of idle sequences and reservations of running ones."""
        return self._idle_tokens + self._reserved_tokens

    def has_room(self, tokens: int) -> bool:
        """Whether a turn of at most this many tokens can start, given that idle episodes can be forgotten."""
        return self._reserved_tokens + tokens <= self.max_tokens

    def acquire(self, episode_id: str | None, full_ids: Ids, reserve: int) -> CachedSequence | None:
        """Take the best cache for a turn: at most all but the last of ``full_ids``, which is left to be computed.

        Args:
            episode_id: the episode whose own cache is tried first; None for none.
            full_ids: int32 ``[T]``, what the model is to read next, from the very start.
            reserve: most tokens the sequence may hold when the turn ends.

        Returns:
            The sequence, its ``ids`` being a prefix of ``full_ids``; or None where another running turn is about to
            cache a longer prefix: ask again after the next forward.
        """
        own = self._idle.get(episode_id) if episode_id is not None else None
        most = len(full_ids) - 1
        cached = min(_common_prefix(own.ids, full_ids), most) if own is not None else 0
        if own is not None and cached >= len(own.prompt):
            self._take(own, episode_id)
            own.length = cached
            return self._start(own, reserve)
        keys = _block_keys(full_ids)
        donor = self._find(keys)
        shared = min(_common_prefix(donor.prompt, full_ids), most) if donor is not None else 0
        borrows = donor is not None and shared >= cached + _BLOCK
        if donor is not None and borrows and donor.length < shared:
            return None
        sequence = CachedSequence() if own is None else self._take(own, episode_id)
        if donor is not None and borrows:
            sequence.kv = donor.kv.fork(shared)
            sequence.length = 0
            sequence.extend(full_ids[:shared])
        else:
            sequence.length = cached
        self._register(sequence, full_ids, keys)
        return self._start(sequence, reserve)

    def put_back(self, episode_id: str | None, sequence: CachedSequence) -> None:
        """End a turn: keep the sequence under the episode's id, or forget it where there is none."""
        self._reserved_tokens -= sequence.reserved
        sequence.reserved = 0
        if episode_id is None:
            self._unregister(sequence)
            return
        if sequence.length < len(sequence.prompt):
            # It ended while its prompt was read: nobody may wait for the rest.
            self._register(sequence, sequence.ids.copy(), sequence._keys[: sequence.length // _BLOCK])
        self.release(episode_id)
        self._idle[episode_id] = sequence
        self._idle_tokens += sequence.length
        self._make_room()

    def release(self, episode_id: str) -> None:
        """Forget an idle episode; unknown ids are fine."""
        if episode_id in self._idle:
            self._unregister(self._take(self._idle[episode_id], episode_id))

    def clear(self) -> None:
        """Forget everything, running turns' sequences and reservations included."""
        self._idle.clear()
        self._by_block.clear()
        self._idle_tokens = self._reserved_tokens = 0

    def _take(self, sequence: CachedSequence, episode_id: str | None) -> CachedSequence:
        self._idle.pop(episode_id)  # type: ignore[arg-type]
        self._idle_tokens -= sequence.length
        return sequence

    def _start(self, sequence: CachedSequence, reserve: int) -> CachedSequence:
        sequence.reserved = reserve
        self._reserved_tokens += reserve
        self._make_room()
        return sequence

    def _make_room(self) -> None:
        while self._idle and self.cached_tokens > self.max_tokens:
            self.release(next(iter(self._idle)))
            self.evictions += 1

    def _find(self, keys: list[int]) -> CachedSequence | None:
        found = None
        for key in keys:
            sequence = self._by_block.get(key)
            if sequence is None:
                break
            found = sequence
        return found

    def _register(self, sequence: CachedSequence, prompt: Ids, keys: list[int]) -> None:
        self._unregister(sequence)
        sequence.prompt, sequence._keys = prompt, keys
        self._by_block.update(dict.fromkeys(keys, sequence))

    def _unregister(self, sequence: CachedSequence) -> None:
        for key in sequence._keys:
            if self._by_block.get(key) is sequence:
                del self._by_block[key]
        sequence._keys = []


def _block_keys(ids: Ids) -> list[int]:
    """One hash a full block of ids, each over everything before it too."""
    data = ids.tobytes()
    keys, key = [], 0
    for start in range(0, len(data) - _BLOCK_BYTES + 1, _BLOCK_BYTES):
        key = hash((key, data[start : start + _BLOCK_BYTES]))
        keys.append(key)
    return keys


def _common_prefix(a: Ids, b: Ids) -> int:
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n
