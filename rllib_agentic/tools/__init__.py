"""Tools: what agents call, how their calls are read and run, and environments that are used through them."""

from rllib_agentic.tools.function_tool import tool
from rllib_agentic.tools.output import result_text, shorten
from rllib_agentic.tools.running import CallResult, Outcome
from rllib_agentic.tools.tool import Tool, ToolError, ToolResult
from rllib_agentic.tools.tool_env import Grade, ToolEnv
from rllib_agentic.tools.use import ToolUse

__all__ = [
    "CallResult",
    "Grade",
    "Outcome",
    "Tool",
    "ToolEnv",
    "ToolError",
    "ToolResult",
    "ToolUse",
    "result_text",
    "shorten",
    "tool",
]
