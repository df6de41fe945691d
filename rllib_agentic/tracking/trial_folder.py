"""Where a trial's own files lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.fs


def trial_folder(trial: Any) -> Path:
    """The folder of a Tune trial that outlives the run: in the results where they are local.

    Where results go to remote storage it is the driver's staging folder, which Tune does not bring back on resume.
    """
    local = isinstance(trial.storage.storage_filesystem, pyarrow.fs.LocalFileSystem)
    folder = Path(trial.path if local else trial.local_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
