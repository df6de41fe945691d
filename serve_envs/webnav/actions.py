"""Actions on a page, as the agent writes them."""

from __future__ import annotations

import re
from typing import NamedTuple

from serve_envs.action_text import extract_action

_FORMS = (
    re.compile(r"(click) \[?(\d+)\]?"),
    re.compile(r"(type|select) \[?(\d+)\]? (.+)"),
    re.compile(r"(scroll)(?: |\s*\[)(down|up)\]?"),
    re.compile(r"(press) \[?([A-Za-z+]{1,20})\]?"),
    re.compile(r"(back|go_back)"),
)
_KEYS = {"enter": "Enter", "tab": "Tab", "escape": "Escape", "backspace": "Backspace", "arrowdown": "ArrowDown",
         "arrowup": "ArrowUp"}  # fmt: skip


class Action(NamedTuple):
    """One action: ``target`` is a node's id, 0 where there is none."""

    verb: str
    target: int
    text: str


def read_action(said: str) -> Action | None:
    r"""The action in what the agent said, or None.

    Example:
        >>> read_action('Thought: the name goes first.\nAction: type 3 "Bo"')
        Action(verb='type', target=3, text='Bo')
        >>> read_action("click [12]"), read_action("scroll down"), read_action("jump")
        (Action(verb='click', target=12, text=''), Action(verb='scroll', target=0, text='down'), None)
    """
    line = " ".join(extract_action(said).split())
    for form in _FORMS:
        match = form.fullmatch(line)
        if match is None:
            continue
        verb, *rest = match.groups()
        if verb in ("click", "type", "select"):
            return Action(verb, min(int(rest[0]), 10**6), _unquoted(rest[1]) if len(rest) > 1 else "")
        if verb == "press":
            key = _KEYS.get(rest[0].lower())
            return None if key is None else Action(verb, 0, key)
        return Action("back" if verb == "go_back" else verb, 0, rest[0] if rest else "")
    return None


def _unquoted(text: str) -> str:
    for pair in ('""', "''", "[]"):
        if len(text) > 1 and text[0] == pair[0] and text[-1] == pair[1]:
            return text[1:-1][:500]
    return text[:500]
