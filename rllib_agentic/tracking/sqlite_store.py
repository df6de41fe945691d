"""Make MLflow's SQLite database once, whole, however many processes ask for it at the same time."""

from __future__ import annotations

import os
from pathlib import Path

from filelock import FileLock

_LOCK_TIMEOUT_S = 120


def make_database(file: Path) -> None:
    """Make the tables of MLflow in ``file``, unless it exists.

    MLflow runs its migrations without a lock: measured with 3.17, two processes that start together leave a
    database that neither can open. Here one process makes it aside and renames it, so that nobody, not even after a
    crash, ever sees half of it.
    """
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file}.lock", timeout=_LOCK_TIMEOUT_S):
        if file.exists():
            return
        from mlflow import MlflowClient

        aside = file.with_name(f".{file.name}.{os.getpid()}.tmp")
        MlflowClient(f"sqlite:///{aside}").search_experiments(max_results=1)
        os.replace(aside, file)
