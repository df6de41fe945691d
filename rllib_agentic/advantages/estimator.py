"""Advantage estimators: from the trajectories of a batch to one number a turn or a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from rllib_agentic.components import Family, Settings
from rllib_agentic.trajectory import Trajectory

Advantages = list[float | npt.NDArray[np.float64]]
"""One entry a turn: a number for the whole turn, or float64 ``[A]``, one a sampled token of the turn."""


@runtime_checkable
class Estimator(Protocol):
    """Makes advantages on the driver, from raw rewards alone.

    Contract: groups by ``group_id``; statistics over valid trajectories, each once; the result does not depend on the
    order of the batch and is always finite; groups without signal get exactly 0. A reward that is not finite is an
    :class:`~rllib_agentic.errors.InputError`.

    Where ``needs_group`` is true (absent means false), groups of one teach nothing. Estimators that need a critic are
    :class:`~rllib_agentic.advantages.critic.CriticEstimator` and run on the learner.
    """

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[Advantages | None]:
        """A list a trajectory, as :func:`~rllib_agentic.trajectory.rows_of` takes it; None where it is not trained."""
        ...


@runtime_checkable
class TokenPenaltyEstimator(Protocol):
    """An estimator that can tell one sampled token's reward from another's.

    Where a divergence is taken from the reward and ``takes_token_penalties`` holds, the estimator gets one penalty a
    sampled token. Others get trajectories whose turns have lost the sum of their tokens' penalties.
    """

    @property
    def takes_token_penalties(self) -> bool:
        """Whether token-level rewards mean something under the present settings."""
        ...

    def __call__(
        self,
        trajectories: Sequence[Trajectory],
        penalties: Sequence[npt.NDArray[np.float64] | None] | None = None,
    ) -> list[Advantages | None]:
        """As an :class:`Estimator`; ``penalties`` are float64 ``[A]`` a trajectory, None where invalid."""
        ...


ESTIMATORS: Family[Settings] = Family(
    "advantages",
    {
        "grpo": "rllib_agentic.advantages.grpo:GRPOEstimator",
        "rloo": "rllib_agentic.advantages.rloo:RLOOEstimator",
        "reinforce_pp": "rllib_agentic.advantages.reinforce_pp:ReinforcePPEstimator",
        "gigpo": "rllib_agentic.advantages.gigpo:GiGPOEstimator",
        "gae": "rllib_agentic.advantages.gae:GAEEstimator",
        "bi_level_gae": "rllib_agentic.advantages.bi_level_gae:BiLevelGAEEstimator",
        "cloning": "rllib_agentic.advantages.cloning:CloningEstimator",
        "step_gae": "rllib_agentic.advantages.step_gae:StepGAEEstimator",
    },
)


def advantage_metrics(trajectories: Sequence[Trajectory], advantages: Sequence[Advantages | None]) -> dict[str, float]:
    """Counts and shares that say how much of a batch teaches anything.

    Keys: ``groups``, ``singleton_groups`` (one valid member), ``zero_groups`` (every advantage is 0),
    ``zero_group_share``, and over sampled tokens ``abs_mean``, ``min``, ``max``. The shares and the last three are
    left out where there is nothing to average.
    """
    groups: dict[str, list[int]] = {}
    for position, trajectory in enumerate(trajectories):
        if trajectory.invalid is None:
            groups.setdefault(trajectory.group_id, []).append(position)
    flat = [_per_token(t, a) for t, a in zip(trajectories, advantages, strict=True)]
    zero = sum(not any(flat[i].any() for i in members) for members in groups.values())
    metrics = {
        "groups": float(len(groups)),
        "singleton_groups": float(sum(len(members) == 1 for members in groups.values())),
        "zero_groups": float(zero),
    }
    if groups:
        metrics["zero_group_share"] = zero / len(groups)
    tokens = np.concatenate([np.zeros(0), *flat])
    if len(tokens):
        metrics["abs_mean"] = float(np.abs(tokens).mean())
        metrics["min"], metrics["max"] = float(tokens.min()), float(tokens.max())
    return metrics


def _per_token(trajectory: Trajectory, advantages: Advantages | None) -> npt.NDArray[np.float64]:
    if trajectory.invalid is not None or advantages is None:
        return np.zeros(0)
    pairs = zip(trajectory.turns, advantages, strict=True)
    return np.concatenate([np.broadcast_to(np.asarray(a, np.float64), len(turn.action_ids)) for turn, a in pairs])
