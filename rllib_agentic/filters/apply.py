"""Several filters, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from rllib_agentic.filters.filter import FilterResult, GroupFilter, Groups
from rllib_agentic.filters.metrics import filter_metrics


def apply_filters(filters: Sequence[GroupFilter], groups: Groups) -> FilterResult:
    """Each filter sees only what the ones before it kept; a group must pass all.

    Returns:
        One decision a group of the input. The metrics are those of the whole chain; where there are several filters,
        each one's own follow under its number: ``0/kept_share``, ``1/kept_share``.
    """
    survivors = list(range(len(groups)))
    own: dict[str, float] = {}
    for number, chosen in enumerate(filters):
        result = chosen([groups[i] for i in survivors])
        survivors = [i for i, kept in zip(survivors, result.keep, strict=True) if kept]
        own |= {f"{number}/{name}": value for name, value in result.metrics.items()}
    alive = set(survivors)
    keep = [i in alive for i in range(len(groups))]
    return FilterResult(keep, filter_metrics(groups, keep) | (own if len(filters) > 1 else {}))
