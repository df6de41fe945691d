"""Read stored trajectories back, exactly as they were written."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rllib_agentic.errors import InputError
from rllib_agentic.store.codec import decode_trajectory
from rllib_agentic.store.schema import PART, PARTITION, SCHEMA, SCHEMA_VERSION
from rllib_agentic.trajectory import Trajectory

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    """One trajectory with what the run knew about it.

    Attributes:
        iteration: the training iteration.
        number: its number in the iteration, from 0; with the iteration it names the trajectory.
        attempt: how often the iteration was written, from 1.
        trajectory: the trajectory itself.
        kept: whether the filters kept it; None where nobody said.
        advantages: float32 ``[A]`` a turn as trained; None where it was not trained.
    """

    iteration: int
    number: int
    attempt: int
    trajectory: Trajectory
    kept: bool | None = None
    advantages: tuple[np.ndarray, ...] | None = None


class TrajectoryReader:
    """Reads one store, partition by partition: only one iteration is in memory at a time.

    Args:
        folder: a folder with ``iteration=...`` partitions (see :func:`find_stores` for the search below a run).

    Raises:
        InputError: the folder does not exist or holds no trajectories.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise InputError(f"trajectories: no such folder: {self.folder}")
        self._files = _partitions(self.folder)
        if not self._files:
            raise InputError(
                f"trajectories: {self.folder} holds none: expected partitions such as iteration=000001/{PART}. "
                "Give the folder that a run wrote, named in the table at its end."
            )

    @property
    def iterations(self) -> list[int]:
        """The stored iterations, in order."""
        return list(self._files)

    def __iter__(self) -> Iterator[StoredTrajectory]:
        """All trajectories, in order of iteration and number."""
        return self.select()

    def select(
        self,
        *,
        iterations: Collection[int] | None = None,
        success: bool | None = None,
        invalid: bool | None = None,
    ) -> Iterator[StoredTrajectory]:
        """The trajectories that meet every given condition, in order.

        Args:
            iterations: only these; iterations that are not stored give nothing.
            success: only solved (true) or unsolved (false) ones.
            invalid: only those that infrastructure spoiled (true), or only valid ones (false).
        """
        for iteration, file in self._files.items():
            if iterations is not None and iteration not in iterations:
                continue
            for rows in _grouped(pq.read_table(file, partitioning=None, schema=SCHEMA)):
                if success is not None and rows[0]["success"] != success:
                    continue
                if invalid is not None and (rows[0]["invalid"] is not None) != invalid:
                    continue
                yield _stored(iteration, rows)

    def get(self, iteration: int, number: int) -> StoredTrajectory:
        """One trajectory by its name.

        Raises:
            InputError: it is not stored; the message says what is.
        """
        if iteration not in self._files:
            known = self.iterations
            raise InputError(f"trajectories: no iteration {iteration} in {self.folder}; stored: {_ranges(known)}")
        file = self._files[iteration]
        found = list(_grouped(pq.read_table(file, partitioning=None, filters=[("trajectory", "=", number)])))
        if not found:
            held = len(pq.read_table(file, columns=["trajectory"], partitioning=None)["trajectory"].unique())
            raise InputError(
                f"trajectories: iteration {iteration} holds {held} trajectories, numbered from 0; got {number}"
            )
        return _stored(iteration, found[0])

    def overview(self) -> pd.DataFrame:
        """One line a trajectory with its scalar columns and its iteration, without tokens and texts."""
        names = SCHEMA.names[SCHEMA.names.index("attempt") : SCHEMA.names.index("kept") + 1]
        frames = []
        for iteration, file in self._files.items():
            frame = pq.read_table(file, columns=names, partitioning=None).to_pandas()
            frame.insert(0, "iteration", iteration)
            frames.append(frame.drop_duplicates("trajectory"))
        return pd.concat(frames, ignore_index=True)


def find_stores(folder: str | Path) -> list[Path]:
    """All folders with trajectories, ``folder`` itself and everything below: a trial, an experiment, a sweep."""
    found = {partition.parent for partition in Path(folder).rglob("iteration=*") if (partition / PART).is_file()}
    return sorted(found)


def _partitions(folder: Path) -> dict[int, Path]:
    files: dict[int, Path] = {}
    for partition in folder.iterdir():
        match = PARTITION.fullmatch(partition.name)
        if not match:
            continue
        for leftover in partition.glob(".*.tmp"):
            logger.warning("trajectories: ignoring %s: a write that never finished", leftover)
        file = partition / PART
        if file.is_file() and _readable(file):
            files[int(match[1])] = file
    return dict(sorted(files.items()))


def _readable(file: Path) -> bool:
    try:
        metadata = pq.read_schema(file).metadata or {}
    except pa.ArrowInvalid as error:
        logger.warning("trajectories: ignoring %s: %s", file, error)
        return False
    version = int(metadata.get(b"schema_version", 0))
    if not 1 <= version <= SCHEMA_VERSION:
        raise InputError(
            f"trajectories: {file} has schema version {version}, this package reads up to {SCHEMA_VERSION}: "
            "read it with the version of rllib_agentic that wrote it, or a newer one"
        )
    return True


def _grouped(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """The rows of one trajectory after the other; list columns are numpy arrays of the stored type."""
    columns = [_values(table.column(name).combine_chunks()) for name in table.column_names]
    rows = (dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True))
    for _, group in groupby(rows, key=lambda row: row["trajectory"]):
        yield list(group)


def _values(column: Any) -> list[Any]:
    if isinstance(column, pa.ChunkedArray):  # no chunk at all, or more bytes than one array can address
        return [value for chunk in column.chunks for value in _values(chunk)]
    if not isinstance(column, pa.ListArray) or isinstance(column, pa.MapArray):
        return column.to_pylist()
    offsets = column.offsets.to_numpy()
    flat = column.values.to_numpy()
    present = column.is_valid().to_numpy(zero_copy_only=False)
    return [
        flat[start:end].copy() if there else None
        for start, end, there in zip(offsets[:-1], offsets[1:], present, strict=True)
    ]


def _stored(iteration: int, rows: list[dict[str, Any]]) -> StoredTrajectory:
    trained = rows[0]["advantages"] is not None
    return StoredTrajectory(
        iteration=iteration,
        number=rows[0]["trajectory"],
        attempt=rows[0]["attempt"],
        trajectory=decode_trajectory(rows),
        kept=rows[0]["kept"],
        advantages=tuple(row["advantages"] for row in rows) if trained else None,
    )


def _ranges(numbers: list[int]) -> str:
    """Numbers for people: ``0-4, 7``."""
    parts = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        parts.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ", ".join(parts)
