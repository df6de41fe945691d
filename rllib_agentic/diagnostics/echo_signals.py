"""What the echo trap is seen by: numbers about one iteration's trajectories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rllib_agentic.trajectory import Trajectory
from rllib_agentic.trajectory.turn import Ids

_NGRAM = 4
_PRIME = np.uint64(0x9E3779B97F4A7C15)


def echo_signals(trajectories: Sequence[Trajectory], grad_norm: float | None = None) -> dict[str, float]:
    """The signals of one iteration, over valid trajectories; what has nothing to be the mean of is left out.

    Args:
        trajectories: all that were sampled, also those that filters dropped, with raw rewards.
        grad_norm: gradient norm before clipping, mean over the iteration's optimizer steps; None where none was taken.

    Returns:
        ``reward_mean``: mean return. ``success_rate``: share of solved trajectories. ``reward_spread``: mean over
        groups of two or more of the standard deviation of returns (divisor n). ``entropy``: mean of ``-logprob`` over
        sampled tokens, in nats: the sampled estimate of the policy's entropy. ``response_tokens``: mean number of
        sampled tokens a trajectory. ``repetition``: see :func:`repetition`. ``duplicates``: share of trajectories that
        sampled the same tokens as another member of their group. ``grad_norm``, where given.
    """
    valid = [t for t in trajectories if t.invalid is None]
    signals: dict[str, float] = {}
    if valid:
        signals |= {
            "reward_mean": _mean([t.total_reward for t in valid]),
            "success_rate": _mean([float(t.success) for t in valid]),
            "response_tokens": _mean([float(t.num_action_tokens) for t in valid]),
            "entropy": -float(np.concatenate([turn.logprobs for t in valid for turn in t.turns]).mean(dtype=float)),
        }
        found = [r for t in valid if (r := repetition(t)) is not None]
        if found:
            signals["repetition"] = _mean(found)
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in valid:
        groups.setdefault(trajectory.group_id, []).append(trajectory)
    compared = [group for group in groups.values() if len(group) > 1]
    if compared:
        signals["reward_spread"] = _mean([float(np.std([t.total_reward for t in group])) for group in compared])
        signals["duplicates"] = _mean([share for group in compared for share in _duplicates(group)])
    if grad_norm is not None and math.isfinite(grad_norm):
        signals["grad_norm"] = grad_norm
    return signals


def repetition(trajectory: Trajectory) -> float | None:
    """Share of a trajectory's sampled 4-grams that it had sampled before; None where no turn has four tokens.

    A 4-gram lies within one turn. A policy that says the same turn over and over, or loops within a turn, nears 1.
    """
    grams = [_grams(turn.action_ids) for turn in trajectory.turns if len(turn.action_ids) >= _NGRAM]
    if not grams:
        return None
    said = np.concatenate(grams)
    return 1 - len(np.unique(said)) / len(said)


def _grams(ids: Ids) -> npt.NDArray[np.uint64]:
    """A number for every 4-gram of a turn, the same for the same four tokens (and for others with chance 2^-64)."""
    windows = np.lib.stride_tricks.sliding_window_view(ids.astype(np.uint64), _NGRAM)
    number = np.zeros(len(windows), np.uint64)
    for column in windows.T:
        number = (number ^ column) * _PRIME
        number ^= number >> np.uint64(29)
    return number


def _duplicates(group: Sequence[Trajectory]) -> list[float]:
    said = [b"|".join(turn.action_ids.astype(np.int32).tobytes() for turn in t.turns) for t in group]
    counts: Mapping[bytes, int] = {text: said.count(text) for text in said}
    return [float(counts[text] > 1) for text in said]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
