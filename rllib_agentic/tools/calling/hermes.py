"""Hermes: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from rllib_agentic.tools.calling.format import CallFormat, Found, list_tools
from rllib_agentic.tools.calling.reading import BadCall, Call
from rllib_agentic.tools.calling.strict_json import JsonFault, decode, decode_from
from rllib_agentic.tools.tool import Tool
from rllib_agentic.trajectory.message import dump_json

_IGNORED = ("id", "type", "thought")


class Hermes(CallFormat):
    """JSON calls between tags, any number of them in a turn.

    The JSON is decoded from the opening tag on, so tags, braces and quotes within its strings are its own. What is no
    JSON ends at the closing tag, or at the next opening tag.

    Attributes:
        open: the opening tag.
        close: the closing tag; generation pauses there where a turn takes one call.
        name_key: the key of the tool's name.
        arguments_key: the key of the arguments.

    Example:
        >>> Hermes().find('Now <tool_call>{"name": "run", "arguments": {"code": "1"}}</tool_call>', 0, ["run"]).calls
        (Call(name='run', arguments={'code': '1'}, positional=(), as_text=False),)
    """

    open: str = Field(default="<tool_call>", min_length=1)
    close: str = Field(default="</tool_call>", min_length=1)
    name_key: str = "name"
    arguments_key: str = "arguments"

    def find(self, text: str, at: int, names: Sequence[str]) -> Found | None:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        start = text.find(self.open, at)
        if start < 0:
            return None
        begin = start + len(self.open)
        try:
            payload, after = decode_from(text, begin)
        except JsonFault as fault:
            return self._unreadable(text, start, begin, str(fault))
        end = text.find(self.close, after)
        if not text[after : max(end, after)].strip() and end >= 0:
            return Found(start, end + len(self.close), self._calls(payload))
        if not text[after:].strip():
            return Found(start, len(text), ())
        return self._unreadable(text, start, after, f"extra data after the object, {self.close} expected")

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        body = dump_json({self.name_key: name, self.arguments_key: dict(arguments)})
        return f"{self.open}\n{body}\n{self.close}"

    def instructions(self, tools: Sequence[Tool]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        return (
            f"You can call these tools, each described by a JSON-Schema of its arguments:\n{list_tools(tools)}\n"
            f'To call one, write {self.open}{{"{self.name_key}": NAME, "{self.arguments_key}": {{...}}}}{self.close}.'
        )

    def stop_strings(self, names: Sequence[str]) -> tuple[str, ...]:
        """The closing tag."""
        return (self.close,)

    def _calls(self, payload: Any) -> tuple[Call | BadCall, ...]:
        return (json_call(payload, self.name_key, self.arguments_key),)

    def _unreadable(self, text: str, start: int, begin: int, fault: str) -> Found:
        end, following = text.find(self.close, begin), text.find(self.open, begin)
        if following >= 0 and (end < 0 or following < end):
            return Found(start, following, (BadCall(fault),))
        return Found(start, len(text), ()) if end < 0 else Found(start, end + len(self.close), (BadCall(fault),))


def json_call(payload: Any, name_key: str, arguments_key: str) -> Call | BadCall:
    """A call out of a decoded JSON object.

    Arguments may be an object, a JSON text of one, null or missing (both mean ``{}``). Anything else, and any key that
    would be lost, is a fault.

    Args:
        payload: what was decoded.
        name_key: the key of the tool's name.
        arguments_key: the key of the arguments.
    """
    if not isinstance(payload, dict):
        return BadCall(f"expected an object with '{name_key}' and '{arguments_key}', got {_kind(payload)}")
    name = payload.get(name_key)
    if not isinstance(name, str) or not name:
        return BadCall(f"'{name_key}' must be the name of a tool, got {_kind(name)}")
    if lost := sorted(payload.keys() - {name_key, arguments_key, *_IGNORED}):
        return BadCall(f"unknown key {lost[0]!r}; arguments belong under '{arguments_key}'", name)
    arguments = payload.get(arguments_key)
    if isinstance(arguments, str):
        try:
            arguments = decode(arguments)
        except JsonFault as fault:
            return BadCall(f"'{arguments_key}' is a text that is no JSON object: {fault}", name)
        if not isinstance(arguments, dict):
            return BadCall(f"'{arguments_key}' must be an object, got a text of {_kind(arguments)}", name)
    if arguments is not None and not isinstance(arguments, dict):
        return BadCall(f"'{arguments_key}' must be an object, got {_kind(arguments)}", name)
    return Call(name, arguments or {})


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return {dict: "an object", list: "a list", str: "a text", int: "a number", float: "a number"}[type(value)]
