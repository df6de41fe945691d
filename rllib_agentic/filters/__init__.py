"""Which groups are worth training on, and what happens when too few are."""

from rllib_agentic.filters.apply import apply_filters
from rllib_agentic.filters.filter import FILTERS, FilterResult, GroupFilter
from rllib_agentic.filters.kept_tasks import KeptTasks
from rllib_agentic.filters.refill import RefillAction, RefillDecision, RefillSettings

__all__ = [
    "FILTERS",
    "FilterResult",
    "GroupFilter",
    "KeptTasks",
    "RefillAction",
    "RefillDecision",
    "RefillSettings",
    "apply_filters",
]
