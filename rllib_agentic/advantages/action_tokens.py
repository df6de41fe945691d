"""The sampled tokens of a trajectory in one line: rewards on them, discounted sums over them, back to turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from rllib_agentic.trajectory import Trajectory

Floats = npt.NDArray[np.float64]


def token_rewards(trajectory: Trajectory) -> Floats:
    """Each turn's raw reward on its last sampled token; float64 ``[A]`` over all sampled tokens of the trajectory.

    A turn that sampled nothing gives its reward to the sampled token before it, or to the first one after it: no
    reward is lost, and none sits on a token that is not trained.
    """
    ends = np.cumsum([len(turn.action_ids) for turn in trajectory.turns])
    rewards = np.zeros(int(ends[-1]))
    for end, turn in zip(ends.tolist(), trajectory.turns, strict=True):
        rewards[max(end - 1, 0)] += turn.reward
    return rewards


def discounted_sums(rewards: npt.ArrayLike, gamma: float) -> Floats:
    """``G_t = r_t + gamma * G_{t+1}``: float64, as long as ``rewards``.

    The entries are sampled tokens (or turns) only, so what the environment wrote between them discounts nothing.

    Example:
        >>> discounted_sums([0, 0, 0, 1.0], 0.9).round(3)
        array([0.729, 0.81 , 0.9  , 1.   ])
    """
    sums: list[float] = []
    after = 0.0
    for reward in reversed(np.asarray(rewards, np.float64).tolist()):
        after = reward + gamma * after
        sums.append(after)
    return np.array(sums[::-1], np.float64)


def with_penalties(trajectory: Trajectory, penalties: Floats) -> Trajectory:
    """Take one penalty a sampled token, float64 ``[A]``, from the rewards of the turns that sampled them."""
    parts = by_turn(penalties, trajectory)
    turns = [replace(t, reward=t.reward - float(np.sum(p))) for t, p in zip(trajectory.turns, parts, strict=True)]
    return replace(trajectory, turns=tuple(turns))


def by_turn(values: Floats, trajectory: Trajectory) -> list[float | Floats]:
    """Cut one value a sampled token into one array a turn."""
    lengths: Sequence[int] = [len(turn.action_ids) for turn in trajectory.turns]
    return list(np.split(values, np.cumsum(lengths)[:-1]))
