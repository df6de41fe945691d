"""RLOO: the reward against the mean of the other members."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from rllib_agentic.advantages.estimator import Advantages
from rllib_agentic.advantages.raw_rewards import reward_groups
from rllib_agentic.components import Settings
from rllib_agentic.trajectory import Trajectory


class RLOOEstimator(Settings):
    """Leave-one-out baseline.

    Kool et al. 2019; for language models Ahmadian et al. 2024, arXiv:2402.14740::

        A_i = R_i - 1 / (G - 1) * sum_{j != i} R_j

    The baseline does not contain the member's own reward, so the estimate is unbiased; it equals ``G / (G - 1)`` times
    that of Dr. GRPO. Rewards 1, 0, 0, 0 give 1, -1/3, -1/3, -1/3. Equal rewards and groups of one give 0.

    Attributes:
        tolerance: relative; rewards that are closer are equal.
    """

    type: ClassVar[str] = "rloo"
    needs_group: ClassVar[bool] = True

    tolerance: float = Field(default=1e-6, ge=0)

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[Advantages | None]:
        """See :class:`~rllib_agentic.advantages.estimator.Estimator`."""
        result: list[Advantages | None] = [None] * len(trajectories)
        for group in reward_groups(trajectories):
            flat = group.is_flat(self.tolerance)
            total = math.fsum(group.rewards)
            for position, reward in zip(group.members, group.rewards, strict=True):
                advantage = 0.0 if flat else reward - (total - reward) / (len(group.rewards) - 1)
                result[position] = [advantage] * len(trajectories[position].turns)
        return result
