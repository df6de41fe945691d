"""Make games ahead, so that no episode waits for one: ``python -m serve_envs.alfworld.make_games --size full``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import get_args

from serve_envs.alfworld.env import AlfWorld
from serve_envs.alfworld.game import cache_folder, open_game
from serve_envs.alfworld.household import Size
from serve_envs.alfworld.problem import domain, problem


def make_games(env: AlfWorld, splits: Iterable[str], processes: int) -> int:
    """Make the games of some splits, those that are not there yet.

    Args:
        env: whose tasks.
        splits: which.
        processes: how many to make at once.

    Returns:
        How many games there are now.
    """
    problems = {problem(task) for split in splits for task in env.tasks()[split]}
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        list(pool.map(_make, sorted(problems), chunksize=8))
    return len(problems)


def _make(text: str) -> None:
    open_game(domain(), text)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Make the games of alfworld ahead.")
    parser.add_argument("--size", choices=get_args(Size), default="full")
    parser.add_argument("--split", action="append", help="may be repeated; all three without it")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    env = AlfWorld(size=given.size)
    count = make_games(env, given.split or env.tasks(), given.processes)
    print(f"{count} games in {cache_folder()}")


if __name__ == "__main__":
    main()
