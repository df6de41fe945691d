"""Group-relative advantages: raw rewards of the valid members of a group, and what counts as no signal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rllib_agentic.errors import InputError
from rllib_agentic.trajectory import Trajectory

Scale = Literal["std", "none"]

NO_REWARD = 1e-12


@dataclass(frozen=True, slots=True)
class RewardGroup:
    """The valid members of one group.

    Attributes:
        members: their positions in the batch, in its order.
        rewards: each one's total raw reward.
        magnitude: the largest sum of absolute turn rewards of a member; what float noise is measured against.
    """

    members: tuple[int, ...]
    rewards: tuple[float, ...]
    magnitude: float

    def is_flat(self, tolerance: float) -> bool:
        """Whether the group says nothing: fewer than two members, or rewards that are equal up to float noise."""
        return is_flat(self.rewards, self.magnitude, tolerance)


def reward_groups(trajectories: Sequence[Trajectory]) -> list[RewardGroup]:
    """Group the valid trajectories by ``group_id``; invalid ones belong nowhere.

    Raises:
        InputError: a valid trajectory has a reward that is not finite. It would poison its siblings, so it is
            refused here; whoever made the reward mends it, or marks the trajectory invalid.
    """
    groups: dict[str, list[int]] = {}
    for position, trajectory in enumerate(trajectories):
        if trajectory.invalid is None:
            _check_finite(trajectory)
            groups.setdefault(trajectory.group_id, []).append(position)
    return [_reward_group(trajectories, members) for members in groups.values()]


def relative_advantages(
    values: Sequence[float], *, magnitude: float, scale: Scale, ddof: int, epsilon: float, tolerance: float
) -> list[float]:
    """How far each value lies above the mean of all: ``(v - mean) / (std + epsilon)``, or without the division.

    Sums are exactly rounded, so the result does not depend on the order of the values.

    Args:
        values: one value a member.
        magnitude: the size of the numbers that were added up to make the values (see :func:`is_flat`).
        scale: ``"std"`` divides by the standard deviation, ``"none"`` does not.
        ddof: 1 for the sample standard deviation (divisor n - 1), 0 for the population's.
        epsilon: added to the standard deviation.
        tolerance: relative; closer values are equal, and equal values or a single one give exactly 0.

    Example:
        >>> settings = dict(magnitude=1.0, ddof=1, epsilon=1e-6, tolerance=1e-6)
        >>> relative_advantages([1, 0, 0, 0], scale="none", **settings)
        [0.75, -0.25, -0.25, -0.25]
        >>> [round(a, 6) for a in relative_advantages([1, 0, 0, 0], scale="std", **settings)]
        [1.499997, -0.499999, -0.499999, -0.499999]
        >>> relative_advantages([0.1 + 0.2, 0.3], scale="std", **settings)
        [0.0, 0.0]
    """
    if is_flat(values, magnitude, tolerance):
        return [0.0] * len(values)
    mean = math.fsum(values) / len(values)
    deviations = [value - mean for value in values]
    if scale == "none":
        return deviations
    std = math.sqrt(math.fsum(d * d for d in deviations) / (len(values) - ddof))
    return [d / (std + epsilon) for d in deviations]


def is_flat(values: Sequence[float], magnitude: float, tolerance: float) -> bool:
    """Whether the values carry no signal: fewer than two, or ``max - min <= tolerance * magnitude``.

    ``magnitude`` is the size of the numbers that were summed, not of the sums: 0.1 + 0.2 - 0.3 differs from 0 by
    float noise although it is "infinitely" larger.
    """
    return len(values) < 2 or max(values) - min(values) <= max(tolerance * magnitude, NO_REWARD)


def _reward_group(trajectories: Sequence[Trajectory], members: Sequence[int]) -> RewardGroup:
    rewards = [[turn.reward for turn in trajectories[i].turns] for i in members]
    return RewardGroup(
        members=tuple(members),
        rewards=tuple(math.fsum(r) for r in rewards),
        magnitude=max(math.fsum(map(abs, r)) for r in rewards),
    )


def _check_finite(trajectory: Trajectory) -> None:
    for number, turn in enumerate(trajectory.turns):
        if not math.isfinite(turn.reward):
            raise InputError(
                f"advantages: turn {number} of member {trajectory.member} of group {trajectory.group_id!r} "
                f"({trajectory.task}) has reward {turn.reward}; expected a finite number. Mend the reward, or mark "
                f"the trajectory invalid"
            )
