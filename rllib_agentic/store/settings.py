"""Whether and where trajectories are stored: the YAML section ``store``."""

from __future__ import annotations

from pathlib import Path

from rllib_agentic.components import Settings
from rllib_agentic.store.writer import TrajectoryWriter


class StoreSettings(Settings):
    """Every trajectory of the run, in Parquet.

    Attributes:
        enabled: store them.
        path: the folder; None for ``trajectories`` in the trial's folder.
    """

    enabled: bool = True
    path: str | None = None

    def writer(self, trial_folder: Path) -> TrajectoryWriter | None:
        """The run's writer, or None where nothing is stored."""
        if not self.enabled:
            return None
        return TrajectoryWriter(self.path or trial_folder / "trajectories")
