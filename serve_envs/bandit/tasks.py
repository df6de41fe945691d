"""Which arms a task offers: names that hint at safe or risky, drawn and ordered by the task."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

SAFE_NAMES = ("Teacher", "Librarian", "Gardener", "Farmer", "Nurse", "Accountant", "Baker", "Clerk", "Tailor", "Monk")
RISKY_NAMES = ("Trader", "Pirate", "Gambler", "Explorer", "Racer", "Smuggler", "Acrobat", "Dragon", "Phoenix", "Knight")

_SHARES = {"train": 0.7, "validation": 0.1, "test": 0.2}


@dataclass(frozen=True, slots=True)
class Arms:
    """One task: the names in the order in which they are shown, and which of them are risky."""

    names: tuple[str, ...]
    risky: frozenset[str]


@lru_cache(maxsize=8)
def make_splits(safe: int, risky: int) -> dict[str, tuple[Arms, ...]]:
    """Draw up to 500 sets of names, no set twice, 70 % train, 10 % validation, 20 % test; each in a drawn order.

    Args:
        safe: number of safe arms.
        risky: number of risky arms.
    """
    draw = random.Random(f"bandit {safe} {risky}")
    pairs = [(low, high) for low in combinations(SAFE_NAMES, safe) for high in combinations(RISKY_NAMES, risky)]
    chosen = draw.sample(pairs, min(500, len(pairs)))
    tasks = []
    for low, high in chosen:
        names = [*low, *high]
        draw.shuffle(names)
        tasks.append(Arms(tuple(names), frozenset(high)))
    first = round(_SHARES["train"] * len(tasks))
    second = first + round(_SHARES["validation"] * len(tasks))
    return {"train": tuple(tasks[:first]), "validation": tuple(tasks[first:second]), "test": tuple(tasks[second:])}


def splits_hash(splits: Mapping[str, tuple[Arms, ...]]) -> str:
    """Hash of all tasks of all splits, in order."""
    content = {split: [[arms.names, sorted(arms.risky)] for arms in tasks] for split, tasks in splits.items()}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
