"""Events of a run: a stage of the curriculum, an alarm. Results carry them beside their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in an iteration.

    Attributes:
        kind: one word, such as ``curriculum`` or ``echo_trap``.
        iteration: when.
        message: one line for people.
    """

    kind: str
    iteration: int
    message: str

    @property
    def tag(self) -> str:
        """The name of the tag that it becomes in MLflow; the same again where an iteration is repeated."""
        return f"event.{self.iteration:06d}.{self.kind}"

    def __str__(self) -> str:
        """For people: ``iteration 12: message``."""
        return f"iteration {self.iteration}: {self.message}"


def events_of(result: Mapping[str, Any]) -> list[Event]:
    """The events of a training result, in order; none where it has no list ``events``.

    Example:
        >>> events_of({"events": [{"kind": "curriculum", "iteration": 3, "message": "10 to 20 turns"}]})[0].tag
        'event.000003.curriculum'
    """
    found = result.get("events")
    return [Event(**entry) for entry in found] if isinstance(found, list) else []
