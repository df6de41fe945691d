"""What the policy sees before each turn, and when that opens a new segment."""

from rllib_agentic.components import Family
from rllib_agentic.context.append_only import AppendOnly
from rllib_agentic.context.sliding_window import SlidingWindow
from rllib_agentic.context.strategy import ContextSettings, ContextStrategy, Exchange, Extend, Rewrite
from rllib_agentic.context.token_window import TokenWindow

CONTEXTS: Family[ContextSettings] = Family(
    "context", {"append_only": AppendOnly, "sliding_window": SlidingWindow, "token_window": TokenWindow}
)

__all__ = [
    "CONTEXTS",
    "AppendOnly",
    "ContextSettings",
    "ContextStrategy",
    "Exchange",
    "Extend",
    "Rewrite",
    "SlidingWindow",
    "TokenWindow",
]
