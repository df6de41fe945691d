"""GRPO and Dr. GRPO: the reward relative to the group's mean, with or without its standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from rllib_agentic.advantages.estimator import Advantages
from rllib_agentic.advantages.group_relative import Scale, relative_advantages
from rllib_agentic.advantages.raw_rewards import reward_groups
from rllib_agentic.components import Settings
from rllib_agentic.trajectory import Trajectory


class GRPOEstimator(Settings):
    """Outcome supervision of GRPO, over whole trajectories: every token of a trajectory gets the same number.

    With ``scale="std"`` (DeepSeekMath, arXiv:2402.03300, section 4.1.2)::

        A_i = (R_i - mean(R)) / (std(R) + epsilon)

    and with ``scale="none"`` that of Dr. GRPO (arXiv:2503.20783, section 3.2), without the difficulty bias of the
    division: ``A_i = R_i - mean(R)``. Mean and std are over the group's valid members; R is the sum of a trajectory's
    raw turn rewards. DeepSeekMath does not say which std: as its reproductions do, ``ddof=1`` is the sample std
    (divisor G - 1); 0 is the population's. StarPO (RAGEN, arXiv:2504.20073) uses the same estimate with the whole
    trajectory as the unit.

    Four members earn 1, 0, 0, 0: the mean is 0.25 and the sample std 0.5, so

    ========  ======  =========  =========
    member    reward  ``std``    ``none``
    ========  ======  =========  =========
    0         1       1.5        0.75
    1, 2, 3   0       -0.5       -0.25
    ========  ======  =========  =========

    Four members that all earn 1 get 0 each, and so does the only member of a group.

    Attributes:
        scale: ``"std"`` for GRPO and DAPO, ``"none"`` for Dr. GRPO.
        ddof: 1 for the sample standard deviation, 0 for the population's.
        epsilon: added to the standard deviation.
        tolerance: relative; rewards that are closer are equal.
    """

    type: ClassVar[str] = "grpo"
    needs_group: ClassVar[bool] = True

    scale: Scale = "std"
    ddof: Literal[0, 1] = 1
    epsilon: float = Field(default=1e-6, ge=0)
    tolerance: float = Field(default=1e-6, ge=0)

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[Advantages | None]:
        """See :class:`~rllib_agentic.advantages.estimator.Estimator`."""
        result: list[Advantages | None] = [None] * len(trajectories)
        for group in reward_groups(trajectories):
            advantages = relative_advantages(
                group.rewards,
                magnitude=group.magnitude,
                scale=self.scale,
                ddof=self.ddof,
                epsilon=self.epsilon,
                tolerance=self.tolerance,
            )
            for position, advantage in zip(group.members, advantages, strict=True):
                result[position] = [advantage] * len(trajectories[position].turns)
        return result
