"""Code as action: calls in Python's notation within a ```` ```python ```` block (AgentGym-RL, arXiv:2509.08755)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from rllib_agentic.tools.calling.fenced import find_block
from rllib_agentic.tools.calling.format import CallFormat, Found, list_tools
from rllib_agentic.tools.calling.python_calls import read_python_calls
from rllib_agentic.tools.tool import Tool


class CodeAsAction(CallFormat):
    r"""A block of Python whose statements are calls of tools; it is read, never run.

    Attributes:
        language: of the blocks that hold calls.

    Example:
        >>> CodeAsAction().find("```python\nmove('north', steps=2)\n```", 0, ["move"]).calls
        (Call(name='move', arguments={'steps': 2}, positional=('north',), as_text=False),)
    """

    language: str = Field(default="python", pattern=r"^[A-Za-z0-9_+.-]+$")

    def find(self, text: str, at: int, names: Sequence[str]) -> Found | None:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        block = find_block(text, at, self.language)
        if block is None:
            return None
        calls = () if block.code is None else read_python_calls(block.code, names)
        return Found(block.start, block.end, calls)

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        written = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        return f"```{self.language}\n{name}({written})\n```\n"

    def instructions(self, tools: Sequence[Tool]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        return (
            f"You can call these tools, each described by a JSON-Schema of its arguments:\n{list_tools(tools)}\n"
            f"To call them, write a block that opens with ```{self.language} and closes with ```, one call a line, "
            "such as NAME(ARGUMENT=VALUE); values are literals, thoughts are comments."
        )

    def stop_strings(self, names: Sequence[str]) -> tuple[str, ...]:
        """The end of a block."""
        return ("\n```\n",)
