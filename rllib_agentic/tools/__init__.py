"""Tools: what agents call, how their calls are read and run, and environments that are used through them."""

from rllib_agentic.tools.function_tool import tool
from rllib_agentic.tools.tool import Tool, ToolError, ToolResult

__all__ = ["Tool", "ToolError", "ToolResult", "tool"]
