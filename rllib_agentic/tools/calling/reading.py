"""What a call format finds in an agent's turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the agent wrote it; nothing is checked against a tool yet.

    Attributes:
        name: of the tool.
        arguments: by name.
        positional: values without a name; they fill the tool's parameters in the order of its schema.
        as_text: whether the values are plain text in which JSON may stand for what is no text: formats without types.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    positional: tuple[Any, ...] = ()
    as_text: bool = False


@dataclass(frozen=True, slots=True)
class BadCall:
    """Something that was meant as a call, and cannot be read as one.

    Attributes:
        fault: what is wrong with it, for the agent.
        name: the tool's name where it can be read; ``""`` where not.
    """

    fault: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """A turn, read.

    Attributes:
        calls: those that count, in their order in the text, readable or not.
        said: the rest of the text: no calls, no reasoning.
        drafts: calls that stand in the reasoning; they never run.
        cut: whether the text ends within a call.
        reasoning_open: whether the text ends within the reasoning.
    """

    calls: tuple[Call | BadCall, ...] = ()
    said: str = ""
    drafts: int = 0
    cut: bool = False
    reasoning_open: bool = False
