"""The tasks: levels and seeds from a fixed file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

from serve_envs.splits import hash_of

SPLITS = ("train", "validation", "test")


class Mission(NamedTuple):
    """One task: a level's short name and the seed of its layout."""

    level: str
    seed: int


@cache
def all_seeds() -> Mapping[str, Mapping[str, tuple[int, ...]]]:
    """Seeds by level and split, as in ``tasks.json``."""
    content = json.loads(files("serve_envs.babyai").joinpath("tasks.json").read_text(encoding="utf-8"))
    return {
        level: {split: tuple(seeds) for split, seeds in splits.items()} for level, splits in content["levels"].items()
    }


@lru_cache(maxsize=16)
def make_splits(levels: tuple[str, ...]) -> dict[str, tuple[Mission, ...]]:
    """Tasks of some levels by split, a task of each level in turn, so that any beginning holds all levels.

    Args:
        levels: short names.
    """
    splits: dict[str, tuple[Mission, ...]] = {}
    for split in SPLITS:
        seeds = {level: all_seeds()[level][split] for level in levels}
        longest = max(map(len, seeds.values()))
        splits[split] = tuple(
            Mission(level, seeds[level][turn])
            for turn in range(longest)
            for level in levels
            if turn < len(seeds[level])
        )
    return splits


def splits_hash(levels: tuple[str, ...]) -> str:
    """Hash of all tasks of all splits, in order."""
    return hash_of(make_splits(levels), list)
