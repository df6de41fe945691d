"""What a group is worth: one number a group, from its valid trajectories."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from rllib_agentic.advantages.raw_rewards import reward_group
from rllib_agentic.trajectory import Trajectory

ScoreName = Literal["reward_std", "reward_mean", "success_rate", "entropy", "length"]

TOLERANCE = 1e-6


def reward_std(group: Sequence[Trajectory]) -> float:
    """Sample standard deviation (divisor n - 1) of the raw total rewards.

    Exactly 0 for one valid trajectory, and for rewards that are equal up to float noise.

    Raises:
        InputError: a reward is not finite.
    """
    raw = reward_group(group)
    if raw.is_flat(TOLERANCE):
        return 0.0
    mean = math.fsum(raw.rewards) / len(raw.rewards)
    return math.sqrt(math.fsum((r - mean) ** 2 for r in raw.rewards) / (len(raw.rewards) - 1))


def reward_mean(group: Sequence[Trajectory]) -> float:
    """Mean of the raw total rewards."""
    return _mean(reward_group(group).rewards)


def success_rate(group: Sequence[Trajectory]) -> float:
    """Share of solved trajectories."""
    return _mean([float(t.success) for t in group if t.invalid is None])


def entropy(group: Sequence[Trajectory]) -> float:
    """Mean of ``-logprob`` over all sampled tokens: the sampled estimate of the policy's entropy, in nats a token."""
    logprobs = [turn.logprobs for t in group if t.invalid is None for turn in t.turns]
    values: list[float] = np.concatenate([np.zeros(0), *logprobs]).tolist()
    return -math.fsum(values) / len(values) if values else 0.0


def length(group: Sequence[Trajectory]) -> float:
    """Mean number of *sampled* tokens a trajectory; observations make nobody longer."""
    return _mean([float(t.num_action_tokens) for t in group if t.invalid is None])


SCORES: Mapping[ScoreName, Callable[[Sequence[Trajectory]], float]] = {
    "reward_std": reward_std,
    "reward_mean": reward_mean,
    "success_rate": success_rate,
    "entropy": entropy,
    "length": length,
}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
