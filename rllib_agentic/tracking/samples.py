"""A few trajectories of a run as one page, so that people see what the model saw."""

from __future__ import annotations

from pathlib import Path

from rllib_agentic.store import StoredTrajectory, TrajectoryReader, as_dict, as_html, find_stores


def sample_page(folder: Path, count: int) -> str | None:
    """An HTML page with samples of the first and the last stored iteration; None where nothing is stored.

    Args:
        folder: a trial's folder; stores below it are found.
        count: the most samples of each iteration, solved and unsolved in turn.
    """
    stores = find_stores(folder)
    if not stores or count < 1:
        return None
    reader = TrajectoryReader(stores[0])
    wanted = sorted({reader.iterations[0], reader.iterations[-1]}, reverse=True)
    samples = [sample for iteration in wanted for sample in _mixed(reader, iteration, count)]
    return as_html([as_dict(sample) for sample in samples], title=f"Sample trajectories of {folder.name}")


def _mixed(reader: TrajectoryReader, iteration: int, count: int) -> list[StoredTrajectory]:
    valid = list(reader.select(iterations=[iteration], invalid=False))
    solved = [s for s in valid if s.trajectory.success]
    unsolved = [s for s in valid if not s.trajectory.success]
    pairs = [sample for pair in zip(solved, unsolved, strict=False) for sample in pair]
    rest = solved[len(unsolved) :] + unsolved[len(solved) :]
    return (pairs + rest)[:count]
