"""Drop the groups that were mostly cut off: their rewards say more about the limit than about the policy."""

from __future__ import annotations

from pydantic import Field

from rllib_agentic.components import Settings
from rllib_agentic.filters.filter import FilterResult, Groups
from rllib_agentic.filters.metrics import filter_metrics


class Overlong(Settings):
    """Drops a group when too many of its valid trajectories were ended by a limit.

    DAPO (arXiv:2503.14476) masks single truncated samples; a group's statistics must not lose members, so here the
    whole group stays or goes.

    Attributes:
        max_share: the largest share of truncated trajectories that a kept group may have.
    """

    max_share: float = Field(default=0.5, ge=0, lt=1)

    def __call__(self, groups: Groups) -> FilterResult:
        """See :class:`~rllib_agentic.filters.filter.GroupFilter`."""
        keep = []
        for group in groups:
            truncated = [t.truncated for t in group if t.invalid is None]
            keep.append(bool(truncated) and sum(truncated) <= self.max_share * len(truncated))
        return FilterResult(keep, filter_metrics(groups, keep))
