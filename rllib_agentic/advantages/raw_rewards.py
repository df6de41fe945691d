"""Raw rewards by group: over valid members only, and what counts as no signal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rllib_agentic.errors import InputError
from rllib_agentic.trajectory import Trajectory

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
    """Group the valid trajectories of a batch by ``group_id``; invalid ones belong nowhere.

    Raises:
        InputError: see :func:`reward_group`.
    """
    groups: dict[str, list[int]] = {}
    for position, trajectory in enumerate(trajectories):
        if trajectory.invalid is None:
            groups.setdefault(trajectory.group_id, []).append(position)
    return [reward_group(trajectories, members) for members in groups.values()]


def reward_group(trajectories: Sequence[Trajectory], members: Sequence[int] | None = None) -> RewardGroup:
    """The raw rewards of one group: of the given members (None for all) that are valid.

    Raises:
        InputError: a valid trajectory has a reward that is not finite. It would poison its siblings, so it is
            refused here; whoever made the reward mends it, or marks the trajectory invalid.
    """
    chosen = range(len(trajectories)) if members is None else members
    valid = tuple(i for i in chosen if trajectories[i].invalid is None)
    rewards = [_turn_rewards(trajectories[i]) for i in valid]
    return RewardGroup(
        members=valid,
        rewards=tuple(math.fsum(r) for r in rewards),
        magnitude=max((math.fsum(map(abs, r)) for r in rewards), default=0.0),
    )


def is_flat(values: Sequence[float], magnitude: float, tolerance: float) -> bool:
    """Whether the values carry no signal: fewer than two, or ``max - min <= tolerance * magnitude``.

    ``magnitude`` is the size of the numbers that were summed, not of the sums: 0.1 + 0.2 - 0.3 differs from 0 by
    float noise although it is "infinitely" larger.
    """
    return len(values) < 2 or max(values) - min(values) <= max(tolerance * magnitude, NO_REWARD)


def _turn_rewards(trajectory: Trajectory) -> list[float]:
    rewards = [turn.reward for turn in trajectory.turns]
    for number, reward in enumerate(rewards):
        if not math.isfinite(reward):
            raise InputError(
                f"rewards: turn {number} of member {trajectory.member} of group {trajectory.group_id!r} "
                f"({trajectory.task}) has reward {reward}; expected a finite number. Mend the reward, or mark "
                f"the trajectory invalid"
            )
    return rewards
