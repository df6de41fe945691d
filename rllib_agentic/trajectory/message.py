"""Messages: what environment and agent say to each other, before any token exists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that an agent made. ``arguments`` is always a mapping (see :func:`as_arguments`)."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: who speaks.
        content: the text. Untrusted: it never becomes a control token.
        reasoning: the agent's thoughts, where a format keeps them apart from ``content``.
        tool_calls: the calls an assistant message makes.
        name: the tool's name in a ``tool`` message.
        continues: whether an environment's text goes on within the agent's own turn, where generation paused, instead
            of opening a turn of its own. Where the agent has ended its turn it comes as a user's message.
    """

    role: Role
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    name: str | None = None
    continues: bool = False

    def to_template(self) -> dict[str, Any]:
        """The dict that Hugging Face chat templates take; empty fields are left out."""
        entry: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning is not None:
            entry["reasoning"] = self.reasoning
            entry["reasoning_content"] = self.reasoning
        if self.tool_calls:
            entry["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
                for call in self.tool_calls
            ]
        if self.name is not None:
            entry["name"] = self.name
        return entry


def as_arguments(payload: Any) -> Mapping[str, Any]:
    """Make a mapping of whatever came as tool arguments, so that templates never iterate a string.

    A mapping stays, a JSON string of an object is decoded, nothing at all is ``{}``, and everything else is
    wrapped as ``{"value": payload}``.

    Example:
        >>> as_arguments('{"a": 3}'), as_arguments("[1,2]"), as_arguments(None)
        ({'a': 3}, {'value': [1, 2]}, {})
    """
    if payload is None:
        return {}
    if isinstance(payload, Mapping):
        return payload
    if isinstance(payload, str):
        try:
            decoded = json.loads(payload)
        except json.JSONDecodeError:
            return {"value": payload}
        return decoded if isinstance(decoded, dict) else {"value": decoded}
    return {"value": payload}


def dump_json(value: Any) -> str:
    """JSON as an agent reads it: real characters, no escapes of non-ASCII text.

    Example:
        >>> dump_json({"город": "Москва"})
        '{"город": "Москва"}'
    """
    return json.dumps(value, ensure_ascii=False)
