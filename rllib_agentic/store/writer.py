"""Write trajectories as Parquet, a partition an iteration."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rllib_agentic.errors import boundary
from rllib_agentic.store.codec import Advantages, encode
from rllib_agentic.store.schema import PART, SCHEMA_VERSION
from rllib_agentic.trajectory import Trajectory


class TrajectoryWriter:
    """Stores every trajectory of a run; the schema stands in :mod:`rllib_agentic.store.schema`.

    A partition appears whole or not at all: it is written aside under a name that readers skip, flushed to the
    disk, then renamed over the old one. An iteration that is written again, as after a resume, replaces its
    partition and counts one more attempt.

    Args:
        folder: where the partitions go; made when the first one is written.

    Example:
        >>> from tempfile import mkdtemp
        >>> from rllib_agentic.trajectory import Task, Trajectory
        >>> lost = Trajectory(Task("bandit", "train", 3), "g0", 0, (), (), False, False, False, "lost", "session_lost")
        >>> TrajectoryWriter(mkdtemp()).write(12, [lost]).parent.name
        'iteration=000012'
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def write(
        self,
        iteration: int,
        trajectories: Sequence[Trajectory],
        *,
        kept: Sequence[bool] | None = None,
        advantages: Sequence[Advantages | None] | None = None,
    ) -> Path:
        """Store one iteration.

        Args:
            iteration: the training iteration, from 0.
            trajectories: all of them, in order: valid and invalid, kept and filtered out.
            kept: whether the filters kept each trajectory.
            advantages: for each trajectory None where it was not trained, else one entry a turn: a number, or
                float ``[A]``, one a sampled token.

        Returns:
            The file that now holds the iteration.

        Raises:
            ValueError: the lengths of the arguments disagree.
            InfrastructureError: the disk refused (kind ``store_unwritable``).
        """
        _check(iteration, trajectories, kept, advantages)
        folder = self.folder / f"iteration={iteration:06d}"
        target = folder / PART
        aside = folder / f".{PART}.{os.getpid()}.tmp"
        with boundary("store_unwritable", OSError):
            folder.mkdir(parents=True, exist_ok=True)
            attempt = _attempt_of(target) + 1
            table = encode(trajectories, attempt=attempt, kept=kept, advantages=advantages)
            table = table.replace_schema_metadata(
                {"schema_version": str(SCHEMA_VERSION), "iteration": str(iteration), "attempt": str(attempt)}
            )
            with open(aside, "wb") as file:
                pq.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, target)
        return target


def _attempt_of(file: Path) -> int:
    """The attempt that a partition's file holds; 0 where there is no readable one."""
    try:
        return int((pq.read_schema(file).metadata or {}).get(b"attempt", 0))
    except (FileNotFoundError, pa.ArrowInvalid):
        return 0


def _check(
    iteration: int,
    trajectories: Sequence[Trajectory],
    kept: Sequence[bool] | None,
    advantages: Sequence[Advantages | None] | None,
) -> None:
    if iteration < 0:
        raise ValueError(f"TrajectoryWriter: iterations count from 0, got {iteration}")
    for name, values in (("kept", kept), ("advantages", advantages)):
        if values is not None and len(values) != len(trajectories):
            raise ValueError(f"TrajectoryWriter: {len(trajectories)} trajectories, but {name} for {len(values)}")
    for number, (trajectory, entries) in enumerate(zip(trajectories, advantages or (), strict=False)):
        if entries is not None and len(entries) != len(trajectory.turns):
            raise ValueError(
                f"TrajectoryWriter: trajectory {number} has {len(trajectory.turns)} turns, "
                f"but {len(entries)} advantages"
            )
