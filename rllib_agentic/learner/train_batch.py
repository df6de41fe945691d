"""The plan of one iteration: which rows each optimizer step takes, and with which weights. Numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rllib_agentic.losses.aggregation import Aggregation, row_weights
from rllib_agentic.trajectory.row import Row


@dataclass(frozen=True, slots=True)
class Minibatch:
    """One optimizer step.

    Attributes:
        rows: int64 ``[B]``, indexes into :attr:`TrainBatch.rows`.
        weights: float64 ``[B]``; the loss is the sum over rows of weight times summed token loss.
    """

    rows: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """Rows, and the optimizer steps over them in order: epochs and shuffles are laid out already.

    Attributes:
        rows: each once, with advantages set.
        minibatches: one an optimizer step. Weights are those of the whole step, also in a learner's share, so
            gradients of the shares add up to the gradient of the step.
    """

    rows: tuple[Row, ...]
    minibatches: tuple[Minibatch, ...]

    def shard(self, rank: int, world_size: int) -> TrainBatch:
        """One learner's share: as many optimizer steps, each with part of its rows (perhaps none).

        A step's trajectories go whole, largest first, to the learner with the fewest tokens so far.
        """
        if world_size == 1:
            return self
        shares = []
        for minibatch in self.minibatches:
            mine = self._ranks(minibatch, world_size) == rank
            shares.append(Minibatch(minibatch.rows[mine], minibatch.weights[mine]))
        return replace(self, minibatches=tuple(shares))

    def without_silent_rows(self) -> TrainBatch:
        """The same plan without the trajectories whose advantages are all 0.

        Where the loss is the policy loss alone, they have no gradient: every step stays, with the same gradient, and
        costs less. Weights were computed over all rows and stay as they are. A trajectory goes whole or not at all,
        because a sequence's ratio or correction reads its silent rows too.
        """
        heard = {row.trajectory for row in self.rows if row.advantages.any()}
        loud = np.array([row.trajectory in heard for row in self.rows])
        number = np.cumsum(loud) - 1
        steps = []
        for step in self.minibatches:
            stays = loud[step.rows]
            steps.append(Minibatch(number[step.rows[stays]], step.weights[stays]))
        return TrainBatch(tuple(row for row, is_loud in zip(self.rows, loud, strict=True) if is_loud), tuple(steps))

    def owned_by(self, rank: int, world_size: int) -> frozenset[int]:
        """The rows that first come up in this learner's share: every row of the plan is owned exactly once."""
        owners: dict[int, int] = {}
        for minibatch in self.minibatches:
            for row, owner in zip(minibatch.rows.tolist(), self._ranks(minibatch, world_size).tolist(), strict=True):
                owners.setdefault(row, owner)
        return frozenset(row for row, owner in owners.items() if owner == rank)

    def _ranks(self, minibatch: Minibatch, world_size: int) -> npt.NDArray[np.int64]:
        trajectories, member = np.unique(
            [self.rows[i].trajectory for i in minibatch.rows.tolist()], return_inverse=True
        )
        tokens = np.bincount(member, weights=[len(self.rows[i]) for i in minibatch.rows.tolist()])
        rank_of = np.zeros(len(trajectories), np.int64)
        load = np.zeros(world_size)
        for trajectory in np.argsort(-tokens, kind="stable"):
            rank_of[trajectory] = load.argmin()
            load[rank_of[trajectory]] += tokens[trajectory]
        return rank_of[member]


def plan_minibatches(
    rows: Sequence[Row],
    *,
    num_epochs: int = 1,
    num_minibatches: int = 1,
    minibatch_size: int | None = None,
    seed: int = 0,
    aggregation: Aggregation = "token_mean",
    constant: float | None = None,
) -> TrainBatch:
    """Lay out the optimizer steps of one iteration. Every row is in exactly one step of every epoch.

    Trajectories stay whole. They are shuffled anew in each epoch and cut in parts whose sizes differ by one at most,
    so no step is short and none takes a row twice.

    Args:
        rows: with advantages; rows of one trajectory have its number.
        num_epochs: passes over the rows.
        num_minibatches: optimizer steps an epoch, at most one a trajectory.
        minibatch_size: trajectories an optimizer step, instead; the parts are as near to it as equal parts allow.
        seed: of the shuffles.
        aggregation: see :func:`~rllib_agentic.losses.aggregation.row_weights`; applied to each step on its own.
        constant: for ``sum_over_constant``.
    """
    trajectory_of_row = np.array([row.trajectory for row in rows], np.int64)
    tokens_of_row = np.array([int(row.action_mask.sum()) for row in rows], np.int64)
    trajectories = np.unique(trajectory_of_row)
    parts = num_minibatches if minibatch_size is None else round(len(trajectories) / minibatch_size)
    parts = min(max(parts, 1), len(trajectories))
    minibatches = []
    for epoch in range(num_epochs if len(rows) else 0):
        shuffled = np.random.default_rng([seed, epoch]).permutation(trajectories)
        for part in np.array_split(shuffled, parts):
            chosen = np.flatnonzero(np.isin(trajectory_of_row, part))
            weights = row_weights(tokens_of_row[chosen], trajectory_of_row[chosen], aggregation, constant)
            minibatches.append(Minibatch(chosen, weights))
    return TrainBatch(tuple(rows), tuple(minibatches))
