"""Which groups are worth training on, and what happens when too few are."""

from rllib_agentic.filters.apply import apply_filters
from rllib_agentic.filters.filter import FILTERS, FilterResult, GroupFilter
from rllib_agentic.filters.refill import Refill, RefillAction, RefillDecision

__all__ = ["FILTERS", "FilterResult", "GroupFilter", "Refill", "RefillAction", "RefillDecision", "apply_filters"]
