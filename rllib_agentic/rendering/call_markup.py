"""How a chat template writes tool calls, found by letting it write some; and such calls in one common form."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rllib_agentic.errors import InputError
from rllib_agentic.rendering.append_rule import ANSWER, PLAIN, TOOLS, USER, Entry, RenderText

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_NAMES = ("qztool", "qzother")
_VALUES = ("qzvalue", "qzthing")
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class CallMarkup:
    r"""What stands around a call in the agent's text.

    Attributes:
        open: before a call; ``""`` where a turn that begins with the JSON is one.
        close: after a call; ``""`` where the end of the JSON, or of the turn, ends it.
        name_end: where the name stands before the JSON of the arguments, what stands between; else None, and the JSON
            holds both.

    Example:
        >>> CallMarkup("[TOOL_CALLS]", "", None).to_hermes('[TOOL_CALLS] [{"name": "add", "arguments": {}}]')
        '<tool_call>[{"name": "add", "arguments": {}}]</tool_call>'
    """

    open: str
    close: str
    name_end: str | None

    def to_hermes(self, text: str) -> str:
        """The text with every call between ``<tool_call>`` and ``</tool_call>``, whatever was written as its JSON.

        A call that the text ends within gets no closing tag. Nothing is repaired, and nothing left out.
        """
        if (self.open, self.close, self.name_end) == (_OPEN, _CLOSE, None):
            return text
        if not self.open:
            head = text.lstrip()
            return self._wrap(head.rstrip(), _json_end(head, 0) is not None) if head[:1] in ("{", "[") else text
        parts: list[str] = []
        at = 0
        while (start := text.find(self.open, at)) >= 0:
            parts.append(text[at:start])
            payload, at, closed = self._payload(text, start + len(self.open))
            parts.append(self._wrap(payload, closed))
        return "".join([*parts, text[at:]])

    def _payload(self, text: str, begin: int) -> tuple[str, int, bool]:
        """The call that begins there as JSON, where it ends, and whether it is closed."""
        name = None
        if self.name_end is not None:
            end = text.find(self.name_end, begin)
            if end < 0:
                return text[begin:], len(text), False
            name, begin = text[begin:end].strip(), end + len(self.name_end)
        whole = _json_end(text, begin)
        end = begin if whole is None else whole
        if self.close:
            closing = text.find(self.close, end)
            after = len(text) if closing < 0 else closing + len(self.close)
            end, closed = (len(text), False) if closing < 0 else (closing, True)
        else:
            following = text.find(self.open, end)
            end = end if whole is not None else len(text) if following < 0 else following
            after, closed = end, whole is not None or following >= 0
        payload = text[begin:end].strip()
        if name is not None:
            payload = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {payload}}}'
        return payload, after, closed

    @staticmethod
    def _wrap(payload: str, closed: bool) -> str:
        return f"{_OPEN}{payload}{_CLOSE if closed else ''}"


def find_call_markup(render: RenderText) -> CallMarkup | None:
    """Let a chat template write one call, and two, and see what it puts around them.

    Args:
        render: runs the template.

    Returns:
        None where it writes no calls, or writes them without JSON.
    """
    one = _calls_text(render, 1)
    found = None if one is None else _locate(one, 0)
    if one is None or found is None:
        return None
    start, end, name_end = found
    before, after = one[:start], one[end:]
    two = _calls_text(render, 2)
    second = None if two is None else _locate(two, 1)
    first = None if two is None else _locate(two, 0)
    if two is not None and first is not None and second is not None and second[0] >= first[1]:
        between = two[first[1] : second[0]]  # the end of one call, and the beginning of the next
        before = _common_prefix(before[::-1], between[::-1])[::-1]
        after = _common_prefix(after, between)
    return CallMarkup(before.strip(), after.strip(), name_end)


def _calls_text(render: RenderText, count: int) -> str | None:
    calls = [
        {
            "type": "function",
            "id": f"qzcall00{number}",
            "function": {"name": _NAMES[number], "arguments": {"x": _VALUES[number]}},
        }
        for number in range(count)
    ]
    entry: Entry = {"role": "assistant", "content": "", "tool_calls": calls}
    try:
        head = render([USER], tools=TOOLS)
        plain = render([USER, PLAIN], tools=TOOLS, prompt=False)
        text = render([USER, entry], tools=TOOLS, prompt=False)
    except InputError:
        return None
    if not text.startswith(head) or _NAMES[count - 1] not in text[len(head) :]:
        return None
    return text[len(head) :].removesuffix(plain.rpartition(ANSWER)[2])


def _locate(text: str, number: int) -> tuple[int, int, str | None] | None:
    """Where a call begins and ends, its name included; and what follows the name where the JSON does not hold it."""
    value = text.find(_VALUES[number])
    name = text.find(_NAMES[number])
    starts = [at for at, char in enumerate(text[: max(value, 0)]) if char in "{["]
    spans = ((start, end) for start in starts if (end := _json_end(text, start)) is not None and end > value)
    start, end = next(spans, (-1, -1))
    if start < 0 or name < 0:
        return None
    if start <= name < end:
        return start, end, None
    between = text[name + len(_NAMES[number]) : start]
    return (name, end, between) if name < start and between else None


def _common_prefix(one: str, other: str) -> str:
    length = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def _json_end(text: str, begin: int) -> int | None:
    begin += len(text[begin:]) - len(text[begin:].lstrip())
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None
    return end if isinstance(value, dict | list) else None
