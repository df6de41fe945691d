"""Calls as bare JSON: ``{"thought": ..., "name": ..., "arguments": {...}}`` (AgentGym-RL, arXiv:2509.08755)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rllib_agentic.tools.calling.format import CallFormat, Found, list_tools
from rllib_agentic.tools.calling.hermes import json_call
from rllib_agentic.tools.calling.reading import BadCall
from rllib_agentic.tools.calling.strict_json import JsonFault, decode_from
from rllib_agentic.tools.tool import Tool
from rllib_agentic.trajectory.message import dump_json

_BEGINS = re.compile(r"^[ \t]*(?=\{\s*[\"'}\w]|\[\s*\{)", re.MULTILINE)


class FunctionJson(CallFormat):
    r"""A JSON object at the beginning of a line, or a list of them, is a call; it may stand in a code block.

    An object without the key of the name is text, such as an answer in JSON.

    Attributes:
        name_key: the key of the tool's name; AgentGym's agents write ``function_name``.
        arguments_key: the key of the arguments.

    Example:
        >>> FunctionJson().find('{"thought": "look", "name": "search", "arguments": {"q": "cats"}}', 0, []).calls
        (Call(name='search', arguments={'q': 'cats'}, positional=(), as_text=False),)
    """

    name_key: str = "name"
    arguments_key: str = "arguments"

    def find(self, text: str, at: int, names: Sequence[str]) -> Found | None:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        while begins := _BEGINS.search(text, at):
            start = begins.end()
            try:
                payload, end = decode_from(text, start)
            except JsonFault as fault:
                if fault.unfinished:
                    return Found(start, len(text), ())
                return Found(start, len(text), (BadCall(str(fault)),))
            payloads = payload if isinstance(payload, list) else [payload]
            if any(self._is_call(one) for one in payloads):
                return Found(start, end, tuple(json_call(one, self.name_key, self.arguments_key) for one in payloads))
            at = end
        return None

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        return dump_json({self.name_key: name, self.arguments_key: dict(arguments)})

    def instructions(self, tools: Sequence[Tool]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        return (
            f"You can call these tools, each described by a JSON-Schema of its arguments:\n{list_tools(tools)}\n"
            f'To call one, answer with one JSON object: {{"thought": WHAT YOU THINK, "{self.name_key}": NAME, '
            f'"{self.arguments_key}": {{...}}}}'
        )

    def _is_call(self, payload: Any) -> bool:
        return isinstance(payload, dict) and self.name_key in payload
