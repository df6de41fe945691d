"""What the agent's text asks for: search, open or answer, in any of the usual ways of writing it."""

from __future__ import annotations

import json
import re
from typing import Literal, NamedTuple

from serve_envs.action_text import extract_action

Verb = Literal["search", "open", "answer"]
_FIELDS: dict[str, str] = {"search": "query", "open": "title", "answer": "text"}
_TAG = re.compile(r"<(search|open|answer)>(.*?)(?:</\1>|$)", re.DOTALL | re.IGNORECASE)
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_WORDS = re.compile(r"(search|open|answer)\s*(?::|\[|\s)\s*(.+?)\]?", re.DOTALL | re.IGNORECASE)


class Action(NamedTuple):
    """One action."""

    verb: Verb
    text: str


def read_action(text: str) -> Action | None:
    r"""The action in what the agent said, or None.

    Read in this order: a ``<tool_call>`` of Hermes, a tag such as ``<search>...</search>``, and the line after
    ``Action:`` (or the first line) as ``search: ...`` or ``search[...]``.

    Example:
        >>> read_action("<think>hm</think><answer> Bern </answer>")
        Action(verb='answer', text='Bern')
        >>> read_action("Thought: where?\nAction: open[Peru: Capital]")
        Action(verb='open', text='Peru: Capital')
        >>> read_action("I do not know") is None
        True
    """
    for call in _CALL.findall(text):
        found = _from_call(call)
        if found is not None:
            return found
    tags = _TAG.findall(text)
    found_words = tags[-1] if tags else None
    if found_words is None:
        match = _WORDS.fullmatch(extract_action(text))
        found_words = match.groups() if match else None
    if found_words is None:
        return None
    content = " ".join(found_words[1].split())
    verb = found_words[0].lower()
    return Action(verb, content) if content else None  # type: ignore[arg-type]


def _from_call(call: str) -> Action | None:
    try:
        said = json.loads(call)
        verb = said["name"]
        content = " ".join(said["arguments"][_FIELDS[verb]].split())
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Action(verb, content) if content else None
