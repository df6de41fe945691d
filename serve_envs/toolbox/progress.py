"""How far a task has come: which of its sub-goals have been reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serve_envs.toolbox.assignment import differences


class SeenProgress:
    """Progress of a question: the share of what must be seen that has been seen.

    Args:
        needed: for each sub-goal the tool and the output that show it.
    """

    def __init__(self, needed: list[tuple[str, str]]) -> None:
        self._needed = list(dict.fromkeys(needed))
        self._open = set(self._needed)

    def seen(self, tool: str, output: str) -> None:
        """Take note of a call's output."""
        self._open.discard((tool, output))

    def share(self) -> float:
        """From 0 to 1; never falls."""
        return 1 - len(self._open) / len(self._needed) if self._needed else 1.0


class StateProgress:
    """Progress of an order: the greatest share of the changes asked for that stood at one time, less what was spoilt.

    Args:
        before: the snapshot at the start.
        goal: the snapshot that is asked for.
    """

    def __init__(self, before: Mapping[str, Any], goal: Mapping[str, Any]) -> None:
        self._goal = goal
        self._wanted = len(differences(before, goal))
        self._best = 0.0

    def look(self, now: Mapping[str, Any]) -> bool:
        """Take note of the state; tells whether the goal is reached."""
        left = len(differences(now, self._goal))
        self._best = max(self._best, 1 - left / self._wanted if self._wanted else 1.0)
        return not left

    def share(self) -> float:
        """From 0 to 1; never falls."""
        return self._best
