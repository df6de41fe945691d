"""Fenced code: a ```` ```python ```` block is a call of the code tool (ToRL, arXiv:2503.23383)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from rllib_agentic.errors import InputError
from rllib_agentic.tools.calling.format import CallFormat, Found, Output, list_tools
from rllib_agentic.tools.calling.reading import Call
from rllib_agentic.tools.tool import Tool
from rllib_agentic.trajectory.message import Message

_WORD = r"^[A-Za-z0-9_+.-]+$"


class Fenced(CallFormat):
    r"""Blocks of one language are calls of one tool; all other blocks are text.

    A block closes with a line of nothing but three backquotes. With ``pause: output`` the agent asks for the output, by
    opening a block of that name: the last closed block of code before it runs, and no code runs that nothing is asked
    of. With ``pause: block`` every block runs, and generation stops where one closes.

    Attributes:
        language: of the blocks that are calls.
        tool: the tool that they call.
        argument: its parameter that gets the code.
        output: the language of the block that holds the output.
        pause: where generation stops: at ```` ```output ```` (ToRL), or at a block's end.

    Example:
        >>> text = "So:\n```python\nprint(1)\n```\n```output"
        >>> Fenced().find(text, 0, ["python"]).calls
        (Call(name='python', arguments={'code': 'print(1)'}, positional=(), as_text=False),)
    """

    language: str = Field(default="python", pattern=_WORD)
    tool: str = "python"
    argument: str = "code"
    output: str = Field(default="output", pattern=_WORD)
    pause: Literal["output", "block"] = "output"

    def find(self, text: str, at: int, names: Sequence[str]) -> Found | None:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        position = at
        while (block := find_block(text, position, self.language, self._closers)) is not None:
            if block.code is None:  # nothing closes it
                return Found(block.start, len(text), ())
            calls = (Call(self.tool, {self.argument: block.code}),)
            if self.pause == "block":
                return Found(block.start, block.end, calls)
            asked = text.find(self._ask, block.body_end)
            following = find_block(text, block.end, self.language, self._closers)
            if asked >= 0 and (following is None or asked < following.start):
                return Found(block.start, asked + len(self._ask), calls)
            position = block.end
        return None

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        if name != self.tool or set(arguments) != {self.argument}:
            raise InputError(f"fenced blocks call {self.tool!r} with {self.argument!r} only, not {name!r}")
        block = f"```{self.language}\n{arguments[self.argument]}\n```\n"
        return f"{block}{self._ask}" if self.pause == "output" else block

    def instructions(self, tools: Sequence[Tool]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        ask = f", then open a block {self._ask}" if self.pause == "output" else ""
        return (
            f"To run code, write it in a block that opens with ```{self.language} and closes with ```{ask}. What it "
            f"prints comes in a block {self._ask}. The tool behind it:\n{list_tools(tools)}"
        )

    def stop_strings(self, names: Sequence[str]) -> tuple[str, ...]:
        """The opening of the output's block, or the end of a block."""
        return (self._ask,) if self.pause == "output" else ("\n```\n",)

    def messages(self, outputs: Sequence[Output]) -> tuple[Message, ...]:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        return (Message("user", "\n".join(f"{self._ask}\n{output.text}\n```" for output in outputs)),)

    def inline(self, outputs: Sequence[Output]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`. The agent has opened the first block itself."""
        opened = self.pause == "output"
        blocks = f"\n{self._ask}".join(f"\n{output.text}\n```" for output in outputs)
        return f"{'' if opened else self._ask}{blocks}\n"

    @property
    def _ask(self) -> str:
        return f"```{self.output}"

    @property
    def _closers(self) -> tuple[str, ...]:
        return ("", self.output) if self.pause == "output" else ("",)


class Block:
    """A block from ``start`` to ``end``, its code up to ``body_end``; ``code`` is None where nothing closes it."""

    __slots__ = ("body_end", "code", "end", "start")

    def __init__(self, start: int, end: int, body_end: int, code: str | None) -> None:
        self.start, self.end, self.body_end, self.code = start, end, body_end, code


def find_block(text: str, at: int, language: str, closers: Sequence[str] = ("",)) -> Block | None:
    """The next fenced block of a language.

    Args:
        text: of the turn.
        at: where to begin.
        language: what follows the opening backquotes.
        closers: what may follow the closing backquotes in their line; with a name the closing line is no part of the
            block, for agents that open the next block without closing this one.
    """
    opening = re.compile(rf"(?<!`)```{re.escape(language)}[ \t]*(?:\r?\n|\Z)").search(text, at)
    if opening is None:
        return None
    names = "|".join(re.escape(name) for name in closers)
    # looked for from the line break before the code on, so that an empty block closes too
    closing = re.compile(rf"^[ \t]*```(?P<name>{names})[ \t\r]*$", re.MULTILINE).search(text, opening.end())
    if closing is None:
        return Block(opening.start(), len(text), len(text), None)
    code = text[opening.end() : closing.start()].removesuffix("\n").removesuffix("\r")
    end = closing.start() if closing["name"] else closing.end()
    return Block(opening.start(), end, closing.start(), code)
