"""Filters: which groups of a batch are worth training on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from rllib_agentic.components import Family, Settings
from rllib_agentic.trajectory import Trajectory

Groups = Sequence[Sequence[Trajectory]]


class FilterResult(NamedTuple):
    """What a filter decided.

    Attributes:
        keep: one entry a group.
        metrics: finite numbers, see :func:`~rllib_agentic.filters.metrics.filter_metrics`.
    """

    keep: list[bool]
    metrics: dict[str, float]


@runtime_checkable
class GroupFilter(Protocol):
    """Chooses whole groups, on raw rewards, before any advantage or normalisation exists.

    Contract: only valid trajectories count; a group without any is dropped; the choice does not depend on the order
    of groups or members, ties included.
    """

    def __call__(self, groups: Groups) -> FilterResult:
        """Decide about every group; each is the list of its trajectories."""
        ...


FILTERS: Family[Settings] = Family(
    "filters",
    {
        "reward_variance": "rllib_agentic.filters.reward_variance:RewardVariance",
        "success_rate": "rllib_agentic.filters.success_rate:SuccessRate",
        "overlong": "rllib_agentic.filters.overlong:Overlong",
    },
)
