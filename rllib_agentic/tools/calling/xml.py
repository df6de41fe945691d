"""Tags: ``<search>query</search>`` calls the tool ``search`` (Search-R1, arXiv:2503.09516)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from rllib_agentic.tools.calling.format import CallFormat, Found, Output, list_tools
from rllib_agentic.tools.calling.reading import BadCall, Call
from rllib_agentic.tools.calling.strict_json import JsonFault, decode
from rllib_agentic.tools.tool import Tool
from rllib_agentic.trajectory.message import dump_json

_CHILD = re.compile(r"\s*<([A-Za-z_][\w.-]*)>(.*?)</\1>\s*", re.DOTALL)


class XmlTags(CallFormat):
    """Every tool is a tag; tags that are no tool's are text.

    What stands in the tag is the value of the tool's first parameter. Where it consists of nothing but tags, these are
    the parameters: ``<search><query>cats</query><k>3</k></search>``. The end of the text in a tag is the tag's first
    closing.

    Attributes:
        payload: what stands in a tag: ``text`` as above, or a ``json`` object with all arguments.
        output: the tag around an output.

    Example:
        >>> XmlTags().find("<search>cats</search>", 0, ["search"]).calls
        (Call(name='search', arguments={}, positional=('cats',), as_text=True),)
    """

    payload: Literal["text", "json"] = "text"
    output: str = Field(default="result", pattern=r"^[A-Za-z_][\w.-]*$")

    def find(self, text: str, at: int, names: Sequence[str]) -> Found | None:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        if not names:
            return None
        tags = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        opening = re.compile(rf"<(?P<name>{tags})\s*(?P<empty>/)?>").search(text, at)
        if opening is None:
            return None
        name = opening["name"]
        if opening["empty"]:
            return Found(opening.start(), opening.end(), (Call(name),))
        closing = f"</{name}>"
        end = text.find(closing, opening.end())
        if end < 0:
            return Found(opening.start(), len(text), ())
        return Found(opening.start(), end + len(closing), (self._call(name, text[opening.end() : end].strip()),))

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        if self.payload == "json":
            return f"<{name}>{dump_json(dict(arguments))}</{name}>"
        texts = {key: value if isinstance(value, str) else dump_json(value) for key, value in arguments.items()}
        return f"<{name}>{''.join(f'<{key}>{text}</{key}>' for key, text in texts.items())}</{name}>"

    def instructions(self, tools: Sequence[Tool]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        how = {
            "text": "<NAME>VALUE</NAME>, or with several values <NAME><PARAMETER>VALUE</PARAMETER>...</NAME>",
            "json": '<NAME>{"PARAMETER": VALUE, ...}</NAME>',
        }[self.payload]
        return (
            f"You can call these tools, each described by a JSON-Schema of its arguments:\n{list_tools(tools)}\n"
            f"To call one, write {how}. What it gives comes within <{self.output}> and </{self.output}>."
        )

    def stop_strings(self, names: Sequence[str]) -> tuple[str, ...]:
        """The tools' closing tags."""
        return tuple(f"</{name}>" for name in names)

    def inline(self, outputs: Sequence[Output]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        return "".join(f"\n<{self.output}>\n{output.text}\n</{self.output}>\n" for output in outputs)

    def _call(self, name: str, payload: str) -> Call | BadCall:
        if self.payload == "json":
            return _json_call(name, payload)
        if not payload:
            return Call(name)
        children = list(_CHILD.finditer(payload))
        if children and "".join(child.group() for child in children) == payload:
            arguments: dict[str, Any] = {}
            for child in children:
                if child[1] in arguments:
                    return BadCall(f"<{child[1]}> stands twice in <{name}>", name)
                arguments[child[1]] = child[2].strip()
            return Call(name, arguments, as_text=True)
        return Call(name, positional=(payload,), as_text=True)


def _json_call(name: str, payload: str) -> Call | BadCall:
    try:
        arguments = decode(payload) if payload else {}
    except JsonFault as fault:
        return BadCall(str(fault), name)
    if not isinstance(arguments, dict):
        return BadCall(f"<{name}> must hold a JSON object", name)
    return Call(name, arguments)
