"""A page as text, and what can be done on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_QUOTED = re.compile(r'"([^"]+)"')
_FIELDS = ("textbox", "searchbox", "spinbutton")
_STILL = ("text",)


@dataclass(frozen=True, slots=True)
class Node:
    """Something on the page.

    Attributes:
        id: what actions call it, until the next look.
        role: ``button``, ``textbox``, ``link``, ``text``, ...; ``clickable`` is text that shows a hand.
        name: its label or text.
        state: what else there is to say: ``value``, ``checked``, ``options``, ``selected``, ``focused``.
    """

    id: int
    role: str
    name: str
    state: Mapping[str, Any]

    def line(self) -> str:
        """One line for the agent.

        Example:
            >>> Node(3, "textbox", "Name", {"value": "Bo", "focused": True}).line()
            '[3] textbox "Name" value "Bo", focused'
        """
        told = []
        for key, value in self.state.items():
            if value is True:
                told.append(key.removesuffix("_tab"))
            elif isinstance(value, list):
                told.append(f"{key} {', '.join(value)}" if value else f"no {key}")
            elif isinstance(value, str):
                told.append(f'{key} "{value}"')
        return f'[{self.id}] {self.role} "{self.name}"{" " + ", ".join(told) if told else ""}'


@dataclass(frozen=True, slots=True)
class View:
    """What a page shows.

    Attributes:
        goal: what the page asks for.
        nodes: from top to bottom.
        done: the page has ended the episode.
        reward: what it paid, from -1 to 1.
        url: where the browser is.
    """

    goal: str
    nodes: tuple[Node, ...]
    done: bool
    reward: float
    url: str = ""

    @classmethod
    def of(cls, seen: Mapping[str, Any]) -> View:
        """From what the browser's side gives."""
        nodes = [
            Node(raw["id"], raw["role"], raw["name"], {k: v for k, v in raw.items() if k not in ("id", "role", "name")})
            for raw in seen["shown"]
        ]
        return cls(seen["goal"], tuple(nodes), bool(seen["done"]), float(seen["reward"]), seen["url"])

    def text(self) -> str:
        """All lines."""
        return "\n".join(node.line() for node in self.nodes) or "The page is empty."

    def actions(self, quoting: str = "") -> tuple[str, ...]:
        """What can be done here; typed are only words that the goal quotes, any other text can be typed as well.

        Args:
            quoting: another text whose quoted words may be typed.
        """
        quoted = list(dict.fromkeys(_QUOTED.findall(f"{self.goal} {quoting}")))
        listed: dict[str, None] = {}
        for node in self.nodes:
            if node.role in _STILL or node.state.get("disabled"):
                continue
            listed[f"click {node.id}"] = None
            if node.role in _FIELDS:
                listed |= {f'type {node.id} "{word}"': None for word in quoted}
            listed |= {f'select {node.id} "{option}"': None for option in node.state.get("options", ())}
        return (*listed, "scroll down", "scroll up")
