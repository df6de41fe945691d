"""The tasks: an experiment and its variation, in ScienceWorld's own splits."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

SPLITS = ("train", "validation", "test")

VARIATIONS: Mapping[str, tuple[int, int, int]] = {
    "boil": (14, 7, 9),
    "change-the-state-of-matter-of": (14, 7, 9),
    "chemistry-mix": (16, 8, 8),
    "chemistry-mix-paint-secondary-color": (18, 9, 9),
    "chemistry-mix-paint-tertiary-color": (18, 9, 9),
    "find-animal": (150, 75, 75),
    "find-living-thing": (150, 75, 75),
    "find-non-living-thing": (150, 75, 75),
    "find-plant": (150, 75, 75),
    "freeze": (14, 7, 9),
    "grow-fruit": (62, 31, 33),
    "grow-plant": (62, 31, 33),
    "identify-life-stages-1": (6, 3, 5),
    "identify-life-stages-2": (4, 2, 4),
    "inclined-plane-determine-angle": (84, 42, 42),
    "inclined-plane-friction-named-surfaces": (692, 346, 348),
    "inclined-plane-friction-unnamed-surfaces": (80, 40, 42),
    "lifespan-longest-lived": (62, 31, 32),
    "lifespan-longest-lived-then-shortest-lived": (62, 31, 32),
    "lifespan-shortest-lived": (62, 31, 32),
    "measure-melting-point-known-substance": (218, 109, 109),
    "measure-melting-point-unknown-substance": (150, 75, 75),
    "melt": (14, 7, 9),
    "mendelian-genetics-known-plant": (60, 30, 30),
    "mendelian-genetics-unknown-plant": (240, 120, 120),
    "power-component": (10, 5, 5),
    "power-component-renewable-vs-nonrenewable-energy": (10, 5, 5),
    "test-conductivity": (450, 225, 225),
    "test-conductivity-of-unknown-substances": (300, 150, 150),
    "use-thermometer": (270, 135, 135),
}
"""Experiment to its variations in train, validation and test: numbered from 0, the splits one after the other."""


class Experiment(NamedTuple):
    """One task."""

    task: str
    variation: int


@lru_cache(maxsize=8)
def make_splits(tasks: tuple[str, ...]) -> dict[str, tuple[Experiment, ...]]:
    """All variations of the experiments, by ScienceWorld's splits, in an order that mixes the experiments."""
    splits: dict[str, tuple[Experiment, ...]] = {}
    for number, split in enumerate(SPLITS):
        found = []
        for task in tasks:
            first = sum(VARIATIONS[task][:number])
            found += [Experiment(task, first + offset) for offset in range(VARIATIONS[task][number])]
        random.Random(f"sciworld {split}").shuffle(found)
        splits[split] = tuple(found)
    return splits
