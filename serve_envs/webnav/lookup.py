"""What solvers of pages look for in a view."""

from __future__ import annotations

import re

from serve_envs.webnav.view import Node, View

_QUOTED = re.compile(r'"([^"]*)"')
FIELDS = ("textbox", "searchbox")
PRESSED = ("button", "clickable", "link", "submit", "tab")
ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")


def quoted(view: View) -> list[str]:
    """What the goal quotes."""
    return _QUOTED.findall(view.goal)


def named(view: View, name: str, roles: tuple[str, ...] = PRESSED) -> Node | None:
    """The first node of that name, whatever its case."""
    wanted = name.strip().lower()
    return next((node for node in view.nodes if node.role in roles and node.name.strip().lower() == wanted), None)


def click(node: Node | None) -> str | None:
    """The click on a node; None without one."""
    return None if node is None else f"click {node.id}"


def fields(view: View) -> list[Node]:
    """The fields for text."""
    return [node for node in view.nodes if node.role in FIELDS]


def fill(view: View, wanted: list[tuple[Node, str]], then: str) -> str | None:
    """Type what the fields lack; then press the button of that name."""
    for node, text in wanted:
        if node.state.get("value") != text:
            return f'type {node.id} "{text}"'
    return click(named(view, then))
