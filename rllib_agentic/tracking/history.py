"""The numbers of every training result, one JSON line each: what plot and end table are made from."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray.tune import Callback

from rllib_agentic.tracking.metrics import scalars
from rllib_agentic.tracking.trial_folder import trial_folder

HISTORY_FILE = "history.jsonl"

logger = logging.getLogger(__name__)


class HistoryCallback(Callback):
    """Appends each result's finite numbers to ``history.jsonl`` in the trial's folder; never stops a run."""

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Append one line."""
        try:
            append_history(trial_folder(trial), result)
        except OSError as error:
            logger.warning("history of trial %s: one line is missing: %s", trial, error)


def append_history(folder: Path, result: Mapping[str, Any]) -> None:
    """Append one result, flat; the trial's folder must exist."""
    with open(folder / HISTORY_FILE, "a", encoding="utf-8") as file:
        file.write(json.dumps(scalars(result).values) + "\n")


def read_history(folder: Path) -> list[dict[str, float]]:
    """The results in order of iteration; empty where there are none.

    After a resume some iterations stand there twice; what came later counts, and what the crash left beyond the
    checkpoint is dropped. A last line that was cut by a crash is left out.
    """
    file = folder / HISTORY_FILE
    if not file.is_file():
        return []
    history: list[dict[str, float]] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            logger.warning("%s: ignoring a line that was cut", file)
            continue
        while history and history[-1].get("training_iteration", 0) >= row.get("training_iteration", 0):
            history.pop()
        history.append(row)
    return history
