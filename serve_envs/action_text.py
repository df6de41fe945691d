"""The action in an agent's text: bare, or at the end of ReAct's ``Thought: ... Action: ...``."""

from __future__ import annotations

import re

_MARKER = re.compile(r"^[ \t]*Action[ \t]*:", re.IGNORECASE | re.MULTILINE)
_MARKER_IN_LINE = re.compile(r"(?<=\s)Action[ \t]*:")


def extract_action(text: str) -> str:
    r"""Find the one action in what the agent said.

    The text after the last ``Action:`` that begins a line counts, or after the last one within a line where none
    begins a line; without the marker the whole text counts. Of that, the first line that is not empty is the action,
    without outer space and without one closing full stop.

    Returns:
        The action, or ``""`` where there is none.

    Example:
        >>> extract_action("Thought: I need logs.\nAction: get 2 oak log.")
        'get 2 oak log'
        >>> extract_action(" Up ")
        'Up'
    """
    markers = list(_MARKER.finditer(text)) or list(_MARKER_IN_LINE.finditer(text))
    tail = text[markers[-1].end() :] if markers else text
    line = next((line.strip() for line in tail.splitlines() if line.strip()), "")
    return line.removesuffix(".").rstrip()
