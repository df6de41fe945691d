"""Algorithms from their checkpoints."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib_agentic.errors import InputError

_CLASS_FILE = "class_and_ctor_args.pkl"


def find_checkpoint(path: str | Path) -> Path:
    """The folder of a checkpoint: itself, or the newest complete one in a trial's or an experiment's folder.

    Raises:
        InputError: there is none.
    """
    folder = Path(path).expanduser().resolve()
    if (folder / _CLASS_FILE).is_file():
        return folder
    found = sorted(folder.glob(f"**/checkpoint_*/{_CLASS_FILE}"), key=lambda file: file.stat().st_mtime)
    if not found:
        raise InputError(
            f"{folder}: there is no checkpoint here; expected a folder with {_CLASS_FILE}, or an experiment's folder "
            "with checkpoint_* folders in it"
        )
    return found[-1].parent


def load_algorithm(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Any:
    """Build the algorithm of a checkpoint, and restore it.

    Checkpoints are pickled: load none from people whom you do not trust.

    Args:
        path: the checkpoint's folder; see :func:`find_checkpoint`.
        overrides: configuration laid over the stored one, for example another evaluation split.

    Raises:
        InputError: there is no checkpoint, or the overrides are wrong.
    """
    folder = find_checkpoint(path)
    with open(folder / _CLASS_FILE, "rb") as file:
        stored = pickle.load(file)
    algorithm = stored["class"]
    (state,), _ = stored["ctor_args_and_kwargs"]
    config = algorithm.get_default_config().from_state(state)
    config._is_frozen = False
    config.update_from_dict(overrides or {})
    algo = algorithm(config)
    try:
        algo.restore_from_path(str(folder))
    except BaseException:
        algo.stop()
        raise
    return algo
