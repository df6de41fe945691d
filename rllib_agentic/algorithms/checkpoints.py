"""Algorithms from their checkpoints."""

from __future__ import annotations

import json
import logging
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib_agentic.errors import InputError

logger = logging.getLogger(__name__)

_CLASS_FILE = "class_and_ctor_args.pkl"
_MANIFEST = "manifest.json"


def write_manifest(folder: Path) -> None:
    """Close a checkpoint: list its files with their sizes, as the last thing that is written."""
    files = {str(f.relative_to(folder)): f.stat().st_size for f in sorted(folder.rglob("*")) if f.is_file()}
    files.pop(_MANIFEST, None)
    aside = folder / f".{_MANIFEST}.{os.getpid()}.tmp"
    aside.write_text(json.dumps(files, indent=1) + "\n")
    os.replace(aside, folder / _MANIFEST)


def missing_part(folder: Path) -> str | None:
    """What a checkpoint lacks to be whole; None where it is: a crash while it was written or copied leaves parts."""
    if not (folder / _MANIFEST).is_file():
        return f"{_MANIFEST}, which is written last"
    try:
        files: dict[str, int] = json.loads((folder / _MANIFEST).read_text())
    except json.JSONDecodeError:
        return f"part of {_MANIFEST}"
    for name, size in files.items():
        file = folder / name
        if not file.is_file():
            return name
        if file.stat().st_size != size:
            return f"part of {name}"
    return None


def find_checkpoint(path: str | Path) -> Path:
    """The folder of a checkpoint: itself, or the newest whole one in a trial's or an experiment's folder.

    Parts that a crash left are passed over with a warning.

    Raises:
        InputError: there is none.
    """
    folder = Path(path).expanduser().resolve()
    if (folder / _CLASS_FILE).is_file():
        if (missing := missing_part(folder)) is not None:
            raise InputError(f"{folder}: this checkpoint is not whole: it lacks {missing}; use an earlier one")
        return folder
    found = sorted(folder.glob("**/checkpoint_*"), key=lambda place: (place.stat().st_mtime, place.name), reverse=True)
    for place in found:
        if (missing := missing_part(place)) is None:
            return place
        logger.warning("%s: passed over, it is not whole: it lacks %s", place, missing)
    raise InputError(
        f"{folder}: there is no whole checkpoint here; expected a folder with {_CLASS_FILE}, or an experiment's folder "
        "with checkpoint_* folders in it"
    )


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
