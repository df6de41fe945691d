"""The tasks: households by split, in rooms that no other split has."""

from __future__ import annotations

import random
from dataclasses import asdict
from functools import lru_cache

from rllib_agentic.errors import InputError
from serve_envs.alfworld.household import Household, Size, furnish, rooms_of
from serve_envs.splits import Counts, hash_of

_DRAWS_PER_TASK = 40


@lru_cache(maxsize=8)
def make_splits(kinds: tuple[str, ...], size: Size, counts: Counts) -> dict[str, tuple[Household, ...]]:
    """Households by split, each once, the kinds of tasks in turn; a split's beginning does not depend on its length.

    Args:
        kinds: of :data:`serve_envs.alfworld.household.KINDS`.
        size: of the households.
        counts: how many tasks each split wants.

    Raises:
        InputError: there are not that many different households.
    """
    splits = {}
    for split, count in counts:
        found: dict[tuple[str, ...], Household] = {}
        for number in range(_DRAWS_PER_TASK * count):
            if len(found) == count:
                break
            draw = random.Random(f"alfworld {split} {size} {number}")
            kind = kinds[len(found) % len(kinds)]
            household = furnish(kind, draw.choice(rooms_of(split, kind)), size, draw)
            found.setdefault(_identity(household), household)
        if len(found) < count:
            raise InputError(f"alfworld: there are only {len(found)} different tasks for {split}; ask for fewer")
        splits[split] = tuple(found.values())
    return splits


@lru_cache(maxsize=8)
def splits_hash(kinds: tuple[str, ...], size: Size, counts: Counts) -> str:
    """Hash of all households of all splits, in order."""
    return hash_of(make_splits(kinds, size, counts), asdict)


def _identity(household: Household) -> tuple[str, ...]:
    """What the agent can tell: ids of things are not part of it."""
    lying = sorted(f"{thing.kind} {thing.place}" for thing in household.things)
    standing = (one.id for one in household.receptacles)
    return (household.kind, household.target, household.destination, *standing, *lying)
