"""Which tasks the filters have never kept: those that a run pays for and does not learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rllib_agentic.filters.filter import Groups


class KeptTasks:
    """Counts, for every task that was played, how often its group was sampled and how often it was kept.

    Args:
        patience: a task counts as never kept once it was sampled so often, and not kept once.

    Example:
        >>> KeptTasks().metrics()
        {'tasks_seen': 0.0, 'tasks_never_kept': 0.0}
    """

    def __init__(self, patience: int = 3) -> None:
        self._patience = patience
        self._counts: dict[str, tuple[int, int]] = {}

    def add(self, groups: Groups, keep: Sequence[bool]) -> None:
        """Count one iteration's groups; those without a valid trajectory say nothing about their task."""
        for group, kept in zip(groups, keep, strict=True):
            if any(t.invalid is None for t in group):
                task = group[0].task
                key = f"{task.env}/{task.split}/{task.index}"
                sampled, stayed = self._counts.get(key, (0, 0))
                self._counts[key] = (sampled + 1, stayed + kept)

    @property
    def never_kept(self) -> list[str]:
        """The tasks, as ``env/split/index``, those sampled most often first."""
        found = {key: n for key, (n, kept) in self._counts.items() if kept == 0 and n >= self._patience}
        return sorted(found, key=lambda key: (-found[key], key))

    def metrics(self) -> dict[str, float]:
        """``tasks_seen``, ``tasks_never_kept``."""
        return {"tasks_seen": float(len(self._counts)), "tasks_never_kept": float(len(self.never_kept))}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {key: list(counts) for key, counts in self._counts.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was taken."""
        self._counts = {key: (int(sampled), int(kept)) for key, (sampled, kept) in state.items()}
