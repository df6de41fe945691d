"""Estimators with a critic: the contract, and the one view of a trajectory that they read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ValuedActions:
    """The sampled tokens of one trajectory in the order of time, with the critic's opinion; no other token.

    Attributes:
        values: float64 ``[A]``; ``values[a]`` is the critic's prediction from the context *before* token ``a``.
        rewards: float64 ``[A]``; a turn's reward lies on its last sampled token.
        turns: int ``[A]``, not decreasing: the number of the turn that each token belongs to.
        final_value: the critic's prediction after the last token; used only where a limit ended the episode.
        terminated: the task ended: nothing comes after, ``final_value`` is not read. It wins over any truncation.
    """

    values: Floats
    rewards: Floats
    turns: npt.NDArray[np.int64]
    final_value: float = 0.0
    terminated: bool = True

    def __post_init__(self) -> None:
        """Lengths agree, turns are in order, and every number that will be read is finite."""
        n = len(self.values)
        if n == 0 or len(self.rewards) != n or len(self.turns) != n:
            raise ValueError(
                f"ValuedActions: {n} values, {len(self.rewards)} rewards and {len(self.turns)} turn numbers; "
                f"expected equal lengths of at least 1"
            )
        if (np.diff(self.turns) < 0).any():
            raise ValueError(f"ValuedActions: turn numbers must not decrease, got {self.turns.tolist()}")
        if not (np.isfinite(self.values).all() and np.isfinite(self.rewards).all() and np.isfinite(self.bootstrap)):
            raise ValueError("ValuedActions: values and rewards must be finite; the critic or a reward is broken")

    @property
    def bootstrap(self) -> float:
        """What the future after the last token is worth: 0 where the task ended, ``final_value`` where a limit did."""
        return 0.0 if self.terminated else self.final_value

    @property
    def turn_starts(self) -> npt.NDArray[np.int64]:
        """Where each turn begins, int ``[N]``: positions of the turns' first tokens."""
        return np.flatnonzero(np.diff(self.turns, prepend=self.turns[0] - 1))


class CriticTargets(NamedTuple):
    """What the learner trains on, for one trajectory.

    Attributes:
        advantages: float64 ``[A]``, not whitened.
        returns: float64 ``[A]``, the critic's targets.
        target_mask: bool ``[A]``, one true token a unit of the method (each token, or the first of each turn): where
            the critic is trained, and what whitening counts.
    """

    advantages: Floats
    returns: Floats
    target_mask: npt.NDArray[np.bool_]


@runtime_checkable
class CriticEstimator(Protocol):
    """Makes advantages on the learner, from a critic's values; one trajectory at a time, all its rows together.

    Batches go through :func:`~rllib_agentic.advantages.row_targets.targets_on_rows`.
    """

    @property
    def whiten(self) -> bool:
        """Whether advantages are whitened over the units of the whole batch."""
        ...

    def on_values(self, actions: ValuedActions) -> CriticTargets:
        """Advantages and returns of one trajectory."""
        ...
