"""What the policy sees before each turn, and when that opens a new segment."""

from rllib_agentic.components import Family
from rllib_agentic.context.append_only import AppendOnly
from rllib_agentic.context.observation_elision import ObservationElision
from rllib_agentic.context.sliding_window import SlidingWindow
from rllib_agentic.context.strategy import Ask, ContextSettings, ContextStrategy, Exchange, Extend, Note, Rewrite
from rllib_agentic.context.summary import Summary

CONTEXTS: Family[ContextSettings] = Family(
    "context",
    {
        "append_only": AppendOnly,
        "sliding_window": SlidingWindow,
        "observation_elision": ObservationElision,
        "summary": Summary,
    },
)

__all__ = [
    "CONTEXTS",
    "AppendOnly",
    "Ask",
    "ContextSettings",
    "ContextStrategy",
    "Exchange",
    "Extend",
    "Note",
    "ObservationElision",
    "Rewrite",
    "SlidingWindow",
    "Summary",
]
