"""What a population does to a trial: it goes on from another trial's checkpoint, under other settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rllib_agentic.tracking.events import Event
from rllib_agentic.tracking.params import flat_params


class Takeovers:
    """Notices when a trial starts again within a session under another configuration than before."""

    def __init__(self) -> None:
        self._configs: dict[str, dict[str, str]] = {}

    def noticed(self, trial: Any) -> Event | None:
        """The event, where a trial that starts was changed since it started last; else None."""
        now = flat_params(trial.config)
        before = self._configs.get(trial.trial_id, now)
        self._configs[trial.trial_id] = now
        changes = [
            f"{name} {before.get(name, 'not set')} -> {now.get(name, 'not set')}"
            for name in sorted(before.keys() | now.keys())
            if before.get(name) != now.get(name)
        ]
        if not changes:
            return None
        source = f"the checkpoint of {Path(trial.checkpoint.path).parent.name}" if trial.checkpoint else "the start"
        iteration = int((trial.last_result or {}).get("training_iteration", 0))
        return Event("scheduler", iteration, f"goes on from {source} with {', '.join(changes)}")
