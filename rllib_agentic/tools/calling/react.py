"""ReAct: ``Thought: ...`` and ``Action: name[input]`` (Yao et al., arXiv:2210.03629)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from rllib_agentic.tools.calling.format import CallFormat, Found, Output, list_tools
from rllib_agentic.tools.calling.python_calls import read_python_calls
from rllib_agentic.tools.calling.reading import BadCall, Call
from rllib_agentic.tools.calling.strict_json import JsonFault, decode_from
from rllib_agentic.tools.tool import Tool
from rllib_agentic.trajectory.message import Message, dump_json

_HEADER = re.compile(
    r"^[ \t]*(Thought|Action Input|Action|Observation|Final Answer)(?: \d+)?[ \t]*:[ \t]*", re.M | re.I
)
_NAME = re.compile(r"\s*([A-Za-z_][\w.-]*)[ \t]*")
_FINISH = re.compile(
    r"(?:^|\n)[ \t]*Final Answer[ \t]*:[ \t]*(.*)|Action(?: \d+)?[ \t]*:\s*Finish\[(.*)\]", re.S | re.I
)


class ReAct(CallFormat):
    r"""Lines with headers; an action's input stands in brackets, as JSON, as Python's arguments, or under a header.

    All of these are one call: ``Action: search[cats]``, ``Action: search {"query": "cats"}``,
    ``Action: search(query="cats")``, ``Action: search`` with ``Action Input: cats`` (or JSON) in the next line. What
    the agent writes after an ``Observation:`` of its own is text. An answer is ``Final Answer: ...`` or
    ``Action: Finish[...]``.

    Example:
        >>> ReAct().find("Thought: where?\nAction: search[cats]", 0, ["search"]).calls
        (Call(name='search', arguments={}, positional=('cats',), as_text=True),)
    """

    def find(self, text: str, at: int, names: Sequence[str]) -> Found | None:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        if "bservation" in text[:at] and any(h[1].lower() == "observation" for h in _HEADER.finditer(text, 0, at)):
            return None
        for header, following in pairwise(chain(_HEADER.finditer(text, at), (None,))):
            assert header is not None
            kind = header[1].lower()
            if kind == "observation":
                return None
            if kind != "action":
                continue
            end = following.start() if following else len(text)
            named = _NAME.match(text, header.end(), end)
            if named is None:
                cut = following is None and not text[header.end() : end].strip()
                nameless = BadCall("an action begins with the name of a tool")
                return Found(header.start(), end, () if cut else (nameless,))
            name, rest = named[1], text[named.end() : end].strip()
            if name.lower() == "finish" and name not in names:
                continue
            if rest or following is None or following[1].lower() != "action input":
                calls = _inline(name, rest, names)
            else:
                begin, following = following.end(), _HEADER.search(text, following.end())
                end = following.start() if following else len(text)
                calls = _with_input(name, text[begin:end].strip())
            return Found(header.start(), end, calls if following or _is_whole(calls) else ())
        return None

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        return f"Action: {name} {dump_json(dict(arguments))}\nObservation:"

    def answer_of(self, said: str) -> str | None:
        """What follows ``Final Answer:``, or stands in ``Finish[...]``."""
        found = _FINISH.search(said)
        if found is None:
            return super().answer_of(said)
        return (found[1] if found[1] is not None else found[2]).strip()

    def instructions(self, tools: Sequence[Tool]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        return (
            f"You can call these tools, each described by a JSON-Schema of its arguments:\n{list_tools(tools)}\n"
            "Write 'Thought:' and what you think, then in a new line 'Action:' and the call, NAME {...} with the "
            "arguments as JSON. What it gives comes after 'Observation:'. End with 'Final Answer:' and the answer."
        )

    def stop_strings(self, names: Sequence[str]) -> tuple[str, ...]:
        """The header of the observation."""
        return ("\nObservation:",)

    def messages(self, outputs: Sequence[Output]) -> tuple[Message, ...]:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`."""
        return (Message("user", "\n".join(f"Observation: {output.text}" for output in outputs)),)

    def inline(self, outputs: Sequence[Output]) -> str:
        """See :class:`~rllib_agentic.tools.calling.format.CallFormat`. The agent has written the header itself."""
        return " " + "\nObservation: ".join(output.text for output in outputs) + "\n"


class _Unfinished(BadCall):
    """A call that would be whole if the text went on."""


def _is_whole(calls: Sequence[Call | BadCall]) -> bool:
    return not any(isinstance(call, _Unfinished) for call in calls)


def _with_input(name: str, written: str) -> tuple[Call | BadCall, ...]:
    if not written.startswith("{"):
        return (_text(name, written),)
    try:
        arguments, end = decode_from(written, 0)
    except JsonFault as fault:
        return ((_Unfinished if fault.unfinished else BadCall)(str(fault), name),)
    if written[end:].strip():
        return (BadCall(f"extra data after the arguments: {written[end:].strip()[:20]!r}", name),)
    return (Call(name, arguments),)


def _inline(name: str, rest: str, names: Sequence[str]) -> tuple[Call | BadCall, ...]:
    for opening, closing in ("[]", "()"):
        if rest.startswith(opening) and not rest.endswith(closing):
            return (_Unfinished(f"the input of {name} opens with {opening} and does not end with {closing}", name),)
    if rest.startswith("["):
        return (_text(name, rest[1:-1].strip()),)
    if rest.startswith("("):
        return read_python_calls(name + rest, names)
    return _with_input(name, rest)


def _text(name: str, written: str) -> Call:
    return Call(name, positional=(written,), as_text=True) if written else Call(name)
