"""Call formats: how an agent writes calls, and how it reads what they gave."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from rllib_agentic.components import Settings
from rllib_agentic.tools.calling.reading import BadCall, Call
from rllib_agentic.tools.schema import tool_definition
from rllib_agentic.tools.tool import Tool
from rllib_agentic.trajectory.message import Message, dump_json

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class Found(NamedTuple):
    """Where a text holds calls: from ``start`` to ``end``. No calls: the text ends before they do."""

    start: int
    end: int
    calls: tuple[Call | BadCall, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """What one call gave, as the agent is to read it."""

    name: str
    text: str


class CallFormat(Settings, ABC):
    """A member of the family ``calling``. Knows texts only: which tools there are, it is told.

    Attributes:
        in_template: whether the chat template describes the tools to the agent, and no text of ours does.
    """

    in_template: ClassVar[bool] = False

    @abstractmethod
    def find(self, text: str, at: int, names: Sequence[str]) -> Found | None:
        """The next calls that begin at ``at`` or later, or None.

        Args:
            text: of the turn.
            at: where to begin.
            names: the tools' names.
        """

    def answer_of(self, said: str) -> str | None:
        """The marked answer in what was said beside calls and reasoning: the text in the last ``<answer>`` pair."""
        found = _ANSWER.findall(said)
        return found[-1].strip() if found else None

    @abstractmethod
    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A call as an agent writes it, with what makes generation pause; for experts and examples.

        Raises:
            InputError: the format has no way to call this tool.
        """

    @abstractmethod
    def instructions(self, tools: Sequence[Tool]) -> str:
        """What the agent is told about its tools and about how to call them."""

    def stop_strings(self, names: Sequence[str]) -> tuple[str, ...]:
        """What ends a call's text, so that generation can pause there; empty where nothing in particular does."""
        return ()

    def messages(self, outputs: Sequence[Output]) -> tuple[Message, ...]:
        """The outputs of a turn's calls, in their order, as messages."""
        return (Message("user", self.inline(outputs).strip("\n")),)

    def inline(self, outputs: Sequence[Output]) -> str:
        """The outputs as text that follows the call within the agent's own turn."""
        return "".join(f"\n<tool_response>\n{output.text}\n</tool_response>\n" for output in outputs)


def list_tools(tools: Sequence[Tool]) -> str:
    """One line of JSON a tool, for instructions."""
    return "\n".join(dump_json(tool_definition(tool)["function"]) for tool in tools)
