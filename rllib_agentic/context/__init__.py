"""What the policy sees before each turn, and when that opens a new segment."""

from rllib_agentic.context.append_only import AppendOnly
from rllib_agentic.context.strategy import ContextStrategy, Exchange, Extend, Rewrite

__all__ = ["AppendOnly", "ContextStrategy", "Exchange", "Extend", "Rewrite"]
