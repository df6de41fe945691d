"""Pairs of a better and a worse trajectory of one task, and their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rllib_agentic.offline.settings import PairSettings
from rllib_agentic.trajectory import Row, Trajectory, rows_of


class Pair(NamedTuple):
    """Two trajectories of one group whose returns differ."""

    better: Trajectory
    worse: Trajectory


def make_pairs(groups: Iterable[Sequence[Trajectory]], settings: PairSettings) -> list[Pair]:
    """Pair the members of each group: best with worst, second best with second worst, and so on.

    Invalid trajectories are in no pair. Between members of equal return, the one that came first counts as better.

    Returns of five members 0, 1, 0.2, 1, 0 make the pairs (1, 0) and (1, 0); 0.2 stays alone. With ``min_gap`` above 1
    there is none.

    Args:
        groups: trajectories of one task each.
        settings: how many, and how far apart.
    """
    pairs: list[Pair] = []
    for group in groups:
        members = [t for t in group if t.invalid is None]
        ranked = sorted(members, key=lambda t: -t.total_reward)  # stable: the order of the group breaks ties
        found = [
            Pair(better, worse)
            for better, worse in zip(ranked[: len(ranked) // 2], ranked[::-1], strict=False)
            if better.total_reward - worse.total_reward >= settings.min_gap
        ]
        pairs += found[: settings.per_group]
    return pairs


def rows_of_pairs(pairs: Iterable[Pair]) -> list[Row]:
    """The rows of pairs as the loss :class:`~rllib_agentic.losses.policy.DPO` takes them.

    All rows of a pair bear the pair's number as their ``trajectory``, so that plans and learners keep it together; the
    advantages are 1 on the better trajectory and -1 on the worse one.
    """
    rows: list[Row] = []
    for number, pair in enumerate(pairs):
        for trajectory, sign in ((pair.better, 1.0), (pair.worse, -1.0)):
            rows += rows_of(trajectory, [sign] * len(trajectory.turns), number=number)
    return rows
