"""Joining sampled ids and bridges to a context."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from rllib_agentic.rendering.renderer import Exchange, Renderer
from rllib_agentic.trajectory.turn import Ids


def as_ids(ids: Sequence[int]) -> Ids:
    """A list of ids as int32 ``[T]``."""
    return np.asarray(ids, dtype=np.int32)


def chain_exchanges(renderer: Renderer, prompt_ids: Ids, exchanges: Sequence[Exchange]) -> Ids:
    """Prompt, then every exchange's sampled ids and the bridge over its observation, int32 ``[T]``.

    Raises:
        PrefixError: the format rewrites an earlier turn on the way.
    """
    ids = prompt_ids
    for exchange in exchanges:
        ids = np.concatenate([ids, exchange.action_ids])
        ids = np.concatenate([ids, renderer.bridge(ids, exchange.finish_reason, exchange.observation)])
    return ids


def without_stop(action_ids: Ids, stop_ids: Collection[int]) -> Ids:
    """The sampled ids without the stop id that ends them, if one does."""
    ended = len(action_ids) > 0 and int(action_ids[-1]) in stop_ids
    return action_ids[:-1] if ended else action_ids
