"""From rows and a critic's output to advantages and value targets on the same rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rllib_agentic.advantages.critic import CriticEstimator, CriticTargets, ValuedActions
from rllib_agentic.advantages.whitening import Moments, moments_of, whiten
from rllib_agentic.trajectory import Row

Floats32 = npt.NDArray[np.float32]


class RowTargets(NamedTuple):
    """What one row is trained on; every array has the row's length T and is 0 or false outside the action mask.

    Attributes:
        advantages: float32, whitened where the estimator says so.
        returns: float32; at the position of action token t stands the target of the value predicted at t - 1.
        target_mask: bool, where ``returns`` is to be fitted.
    """

    advantages: Floats32
    returns: Floats32
    target_mask: npt.NDArray[np.bool_]


def targets_on_rows(
    estimator: CriticEstimator,
    rows: Sequence[Row],
    values: Sequence[npt.NDArray[np.floating]],
    merge_moments: Callable[[Moments], Moments] = lambda own: own,
) -> list[RowTargets]:
    """Run a critic's estimator over whole trajectories, wherever their segments cut them into rows.

    Args:
        estimator: one of the critic-based estimators.
        rows: all rows of each of their trajectories (``Row.trajectory``); in any order.
        values: one array a row, ``[T]``: the critic's output at every position, that is the value of the context up to
            and *including* this token. The baseline of an action at t is therefore ``values[t - 1]``, and after the
            last token of the last row stands the bootstrap value. Other positions are never read.
        merge_moments: takes the whitening moments of these rows, returns those of all learners' rows; the identity for
            one learner.

    Raises:
        ValueError: a trajectory's last row is missing, or a length differs.
    """
    for row, predicted in zip(rows, values, strict=True):
        if predicted.shape != (len(row),):
            raise ValueError(f"targets_on_rows: a row of {len(row)} tokens came with values of shape {predicted.shape}")
    by_trajectory: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        by_trajectory.setdefault(row.trajectory, []).append(i)
    places: list[_Places] = []
    targets: list[CriticTargets] = []
    for number, members in by_trajectory.items():
        place, actions = _valued_actions(number, members, rows, values)
        places.append(place)
        targets.append(estimator.on_values(actions))
    advantages = [t.advantages for t in targets]
    if estimator.whiten:
        units = [t.advantages[t.target_mask] for t in targets]
        moments = merge_moments(moments_of(np.concatenate([np.zeros(0), *units])))
        advantages = [whiten(a, moments=moments) for a in advantages]
    result = [
        RowTargets(np.zeros(len(r), np.float32), np.zeros(len(r), np.float32), np.zeros(len(r), np.bool_)) for r in rows
    ]
    for place, target, advantage in zip(places, targets, advantages, strict=True):
        for i in np.unique(place.row):
            here = place.row == i
            result[i].advantages[place.position[here]] = advantage[here]
            result[i].returns[place.position[here]] = target.returns[here]
            result[i].target_mask[place.position[here]] = target.target_mask[here]
    return result


class _Places(NamedTuple):
    """Where each sampled token of a trajectory lies: the number of its row, and its position there."""

    row: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]


def _valued_actions(
    number: int, members: Sequence[int], rows: Sequence[Row], values: Sequence[npt.NDArray[np.floating]]
) -> tuple[_Places, ValuedActions]:
    last = [i for i in members if rows[i].last]
    if len(last) != 1:
        raise ValueError(
            f"targets_on_rows: {len(last)} of the {len(members)} rows of trajectory {number} hold its last turn; "
            f"expected 1. All rows of a trajectory must come together, to one learner"
        )
    positions = [np.flatnonzero(rows[i].action_mask) for i in members]
    row = np.repeat(members, [len(p) for p in positions])
    position = np.concatenate(positions)
    turns = np.concatenate([rows[i].turn_index[p] for i, p in zip(members, positions, strict=True)]).astype(np.int64)
    order = np.argsort(turns, kind="stable")
    actions = ValuedActions(
        values=np.concatenate([values[i][p - 1] for i, p in zip(members, positions, strict=True)]).astype(float)[order],
        rewards=np.concatenate([_rewards_on(rows[i], p) for i, p in zip(members, positions, strict=True)])[order],
        turns=turns[order],
        final_value=float(values[last[0]][-1]),
        terminated=rows[last[0]].terminated,
    )
    return _Places(row[order], position[order]), actions


def _rewards_on(row: Row, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The row's rewards at its sampled tokens; one that lies elsewhere counts for the sampled token before it."""
    earner = np.maximum(np.searchsorted(positions, np.arange(len(row)), side="right") - 1, 0)
    rewards = np.zeros(len(positions))
    np.add.at(rewards, earner, row.rewards.astype(np.float64))
    return rewards
