"""Weights of imitation in place of advantages: which trajectories are cloned, and how much each counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from rllib_agentic.advantages.estimator import Advantages
from rllib_agentic.advantages.raw_rewards import reward_groups
from rllib_agentic.components import Settings
from rllib_agentic.trajectory import Trajectory


class CloningEstimator(Settings):
    """One positive number for all tokens of a trajectory; none for those that are not imitated.

    With the loss ``weighted_sft`` the gradient is that of ``-sum_i w_i log p(trajectory i)``, the learning step of
    AgentEvol (AgentGym, arXiv:2406.04151) where ``w`` is the return. Three trajectories return 1, 0.5 and 0:

    ===========  ======  ======  =========
    weight        first  second   third
    ===========  ======  ======  =========
    ``one``         1       1       1
    ``return``      1      0.5    left out
    ===========  ======  ======  =========

    What is left out takes no part in any mean over tokens or trajectories either.

    Attributes:
        weight: ``one``, or ``return``: the sum of the trajectory's rewards, where it is positive.
        success: only solved trajectories.
        min_return: only trajectories whose rewards add up to at least this.
    """

    type: ClassVar[str] = "cloning"

    weight: Literal["one", "return"] = "one"
    success: bool = False
    min_return: float | None = None

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[Advantages | None]:
        """See :class:`~rllib_agentic.advantages.estimator.Estimator`; None also where nothing is to be imitated."""
        result: list[Advantages | None] = [None] * len(trajectories)
        for group in reward_groups(trajectories):
            for position, reward in zip(group.members, group.rewards, strict=True):
                trajectory = trajectories[position]
                weight = 1.0 if self.weight == "one" else reward
                kept = (trajectory.success or not self.success) and (
                    self.min_return is None or reward >= self.min_return
                )
                if kept and weight > 0:
                    result[position] = [weight] * len(trajectory.turns)
        return result
