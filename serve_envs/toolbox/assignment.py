"""One task: what is asked, how it is judged, and how it can be done."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Right = float | str | frozenset[str]
"""A right answer: a number, a name, or several names in any order."""

_NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?")


class PlannedCall(NamedTuple):
    """A call that leads to the solution."""

    tool: str
    arguments: Mapping[str, Any]


class World(Protocol):
    """One service with its data. Its tools are its ``@tool`` methods."""

    def snapshot(self) -> dict[str, Any]:
        """Everything that calls can change, flat and JSON-able; empty where they change nothing."""
        ...

    def words(self) -> list[Any]:
        """Values that calls may name, for a random baseline."""
        ...


@dataclass(frozen=True, slots=True)
class Assignment:
    """What is to be done in a world.

    Attributes:
        prompt: the question or the order, as the agent reads it.
        kind: what kind of task it is, in a word or two.
        calls: calls that show what is needed, or bring the goal about.
        answer: the right answer, for questions.
        goal: the snapshot that is to be reached, for orders.
    """

    prompt: str
    kind: str
    calls: tuple[PlannedCall, ...]
    answer: Right | None = None
    goal: Mapping[str, Any] | None = None


def is_right(given: str, right: Right) -> bool:
    """Whether an answer is right.

    A number counts if the answer holds exactly one number, within 0.01. Names count without regard to case, quotes,
    outer space and a closing full stop; several are parted by commas, semicolons or line ends.

    Example:
        >>> is_right("21.50 degrees", 21.5), is_right("between 20 and 22", 21.0)
        (True, False)
        >>> is_right("Rome, oslo.", frozenset({"Oslo", "Rome"})), is_right("Rome", frozenset({"Oslo", "Rome"}))
        (True, False)
    """
    if isinstance(right, float):
        numbers = _NUMBER.findall(given)
        return len(numbers) == 1 and abs(float(numbers[0].replace(",", "")) - right) <= 0.01 + 1e-9
    if isinstance(right, str):
        return _plain(given) == _plain(right)
    return {name for part in re.split(r"[,;\n]", given) if (name := _plain(part))} == {_plain(name) for name in right}


def written(right: Right) -> str:
    """A right answer as an agent may write it."""
    if isinstance(right, float):
        return f"{right:.2f}"
    return right if isinstance(right, str) else ", ".join(sorted(right))


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What of a snapshot is other in a later one: key to new value, None for what is gone.

    Example:
        >>> differences({"a": 1, "b": 2}, {"a": 1, "c": 3})
        {'b': None, 'c': 3}
    """
    changed = {key: after.get(key) for key in before if after.get(key) != before[key]}
    return changed | {key: value for key, value in after.items() if key not in before}


def _plain(text: str) -> str:
    return " ".join(text.strip().strip("\"'`").rstrip(".").strip().casefold().split())
