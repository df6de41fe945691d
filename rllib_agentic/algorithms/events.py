"""Events: what happened in an iteration that a number does not say, for people, logs and tracking."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger(__name__)

EVENTS = "events"
"""Where a result carries its iteration's events: a list of ``{kind, iteration, message}``; absent where none are."""


class EventLog:
    """Collects the events of one iteration."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []

    def add(self, kind: str, iteration: int, message: str, *, warn: bool = False) -> None:
        """Note one event, and log it.

        Args:
            kind: one word, such as ``curriculum`` or ``echo_trap``.
            iteration: when it happened.
            message: one line.
            warn: whether it is bad news.
        """
        logger.log(logging.WARNING if warn else logging.INFO, "iteration %d: %s", iteration, message)
        self._events.append({"kind": kind, "iteration": iteration, "message": message})

    def take(self) -> list[dict[str, Any]]:
        """All events since the last call."""
        taken, self._events = self._events, []
        return taken
