"""Keep the groups that are solved sometimes: neither always nor never."""

from __future__ import annotations

from pydantic import Field, model_validator

from rllib_agentic.components import Settings
from rllib_agentic.filters.filter import FilterResult, Groups
from rllib_agentic.filters.metrics import filter_metrics
from rllib_agentic.filters.scores import success_rate


class SuccessRate(Settings):
    """Keeps a group whose share of solved trajectories lies strictly between two bounds.

    With the defaults that is the condition of DAPO (arXiv:2503.14476): at least one member is right and one is wrong.
    Narrower bounds keep tasks of middling difficulty.

    Attributes:
        above: the share must be greater.
        below: the share must be smaller.
    """

    above: float = Field(default=0.0, ge=0, lt=1)
    below: float = Field(default=1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _bounds_in_order(self) -> SuccessRate:
        if self.above >= self.below:
            raise ValueError(f"'above' ({self.above}) must be smaller than 'below' ({self.below})")
        return self

    @property
    def needs_groups(self) -> bool:
        """A group of one is solved always or never."""
        return True

    def __call__(self, groups: Groups) -> FilterResult:
        """See :class:`~rllib_agentic.filters.filter.GroupFilter`."""
        keep = [
            any(t.invalid is None for t in group) and self.above < success_rate(group) < self.below for group in groups
        ]
        return FilterResult(keep, filter_metrics(groups, keep))
