"""GiGPO: episode groups, and inside them groups of turns that were taken from the same state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from rllib_agentic.advantages.action_tokens import Floats, discounted_sums
from rllib_agentic.advantages.estimator import Advantages
from rllib_agentic.advantages.group_relative import Scale, relative_advantages
from rllib_agentic.advantages.raw_rewards import reward_groups
from rllib_agentic.components import Settings
from rllib_agentic.trajectory import Trajectory


class GiGPOEstimator(Settings):
    """Group-in-group advantages.

    Feng et al. 2025, arXiv:2505.10978, equations 3 and 6 to 8::

        A_E(i)    = (R_i - mean(R)) / F                 over the members of the group
        A_S(i, t) = (G_it - mean(G)) / F                over all turns of the group taken from the same state
        A(i, t)   = A_E(i) + step_weight * A_S(i, t)    for every token of turn t

    ``G_it = r_it + gamma * G_i,t+1`` is the discounted return from turn t on, F is 1 (``scale="none"``) or a standard
    deviation. Turns share a state where their ``state_key`` is equal (an anchor state); a state that one turn only
    was taken from, and turns without a key, have A_S = 0. A member that comes back to a state counts each time.

    Two members, gamma 0.5, step_weight 1, scale "none"; letters are states::

        member 0:  s --r 0--> a --r 1--> won          R = 1, G = (0.5, 1)
        member 1:  s --r 0--> a --r 0--> b --r 0-->   R = 0, G = (0, 0, 0)

    A_E is +0.5 and -0.5. State s was left with returns 0.5 and 0 (mean 0.25): A_S = +0.25, -0.25. State a with 1 and
    0: +0.5, -0.5. State b once: 0. So member 0 gets (0.75, 1.0) and member 1 gets (-0.75, -1.0, -0.5): what went wrong
    at a weighs more than what followed from it.

    Each trajectory counts once in A_E, however many turns it has (public code weighs it by its turns).

    Example:
        The same in code.

        >>> import numpy as np
        >>> from rllib_agentic.trajectory import FinishReason, Task, Turn
        >>> def turn(state, reward):
        ...     ids = np.ones(1, np.int32)
        ...     sampled = (ids, ids, ids.astype(np.float32), ids, FinishReason.STOP, 0, "")
        ...     return Turn(*sampled, reward=reward, state_key=state)
        >>> def member(number, *turns):
        ...     return Trajectory(Task("toy", "train", 0), "g", number, (), turns, True, False, number == 0, "over")
        >>> won, lost = member(0, turn("s", 0), turn("a", 1)), member(1, turn("s", 0), turn("a", 0), turn("b", 0))
        >>> GiGPOEstimator(gamma=0.5)([won, lost])
        [[0.75, 1.0], [-0.75, -1.0, -0.5]]

    Attributes:
        step_weight: the paper's omega.
        gamma: discount a turn.
        scale: ``"none"`` (F = 1) or ``"std"``.
        ddof: 1 for the sample standard deviation, 0 for the population's.
        epsilon: added to the standard deviation.
        tolerance: relative; values that are closer are equal.
    """

    type: ClassVar[str] = "gigpo"
    needs_group: ClassVar[bool] = True

    step_weight: float = Field(default=1.0, ge=0)
    gamma: float = Field(default=0.95, ge=0, le=1)
    scale: Scale = "none"
    ddof: Literal[0, 1] = 1
    epsilon: float = Field(default=1e-6, ge=0)
    tolerance: float = Field(default=1e-6, ge=0)

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[Advantages | None]:
        """See :class:`~rllib_agentic.advantages.estimator.Estimator`."""
        result: list[Advantages | None] = [None] * len(trajectories)
        for group in reward_groups(trajectories):
            episode = self._relative(group.rewards, group.magnitude)
            for position, advantage in zip(group.members, episode, strict=True):
                result[position] = [advantage] * len(trajectories[position].turns)
            returns = {i: turn_returns(trajectories[i], self.gamma) for i in group.members}
            for turns in _anchors(trajectories, group.members).values():
                step = self._relative([float(returns[i][t]) for i, t in turns], group.magnitude)
                for (position, t), advantage in zip(turns, step, strict=True):
                    entries = result[position]
                    assert entries is not None
                    entries[t] = entries[t] + self.step_weight * advantage
        return result

    def _relative(self, values: Sequence[float], magnitude: float) -> list[float]:
        return relative_advantages(
            values,
            magnitude=magnitude,
            scale=self.scale,
            ddof=self.ddof,
            epsilon=self.epsilon,
            tolerance=self.tolerance,
        )


def turn_returns(trajectory: Trajectory, gamma: float) -> Floats:
    """The discounted return from each turn on, float64 ``[N]``; a turn is one step of the discount."""
    return discounted_sums([turn.reward for turn in trajectory.turns], gamma)


def _anchors(trajectories: Sequence[Trajectory], members: Sequence[int]) -> dict[str, list[tuple[int, int]]]:
    anchors: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for position in members:
        for t, turn in enumerate(trajectories[position].turns):
            if turn.state_key is not None and len(turn.action_ids):
                anchors[turn.state_key].append((position, t))
    return anchors
