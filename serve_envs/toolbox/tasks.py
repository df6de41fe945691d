"""Worlds and what is to be done in them, by split: no two splits share a world."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

from serve_envs.splits import hash_of
from serve_envs.toolbox.academia import Academia
from serve_envs.toolbox.assignment import Assignment, Right
from serve_envs.toolbox.movies import Movies
from serve_envs.toolbox.sheet import Sheet
from serve_envs.toolbox.todo import Todo
from serve_envs.toolbox.weather import Weather

DOMAINS: Mapping[str, type[Any]] = {
    "weather": Weather,
    "movies": Movies,
    "todo": Todo,
    "sheet": Sheet,
    "academia": Academia,
}
"""The services, by name."""

_WORLDS = {"train": 12, "validation": 2, "test": 4}
_TASKS_A_WORLD = 10


class Errand(NamedTuple):
    """One task: which world, and what is to be done there."""

    domain: str
    world: str
    assignment: Assignment


@lru_cache(maxsize=16)
def make_splits(domains: tuple[str, ...]) -> dict[str, tuple[Errand, ...]]:
    """Tasks by split, a task of each domain in turn.

    Each domain has worlds of its own for every split, and ten tasks in each of them, two of every kind, whose prompts
    differ. Two worlds may be asked the same question; their data differ.

    Args:
        domains: some of :data:`DOMAINS`.
    """
    by_domain = [_errands(domain) for domain in domains]
    return {
        split: tuple(errand for turn in zip(*(errands[split] for errands in by_domain), strict=True) for errand in turn)
        for split in _WORLDS
    }


@lru_cache(maxsize=16)
def splits_hash(domains: tuple[str, ...]) -> str:
    """Hash of all tasks of all splits, in order."""
    return hash_of(make_splits(domains), _describe)


def build_world(domain: str, world: str) -> Any:
    """A new copy of a world.

    Args:
        domain: its service.
        world: its name, for example ``test 3``.
    """
    return DOMAINS[domain](random.Random(f"toolbox {domain} {world}"))


@cache
def _errands(domain: str) -> dict[str, list[Errand]]:
    errands: dict[str, list[Errand]] = {}
    for split, worlds in _WORLDS.items():
        errands[split] = []
        for number in range(worlds):
            name = f"{split} {number}"
            supply = build_world(domain, name).assignments(random.Random(f"toolbox {domain} {name} tasks"))
            found: list[Errand] = []
            seen: set[str] = set()
            while len(found) < _TASKS_A_WORLD:
                assignment = next(supply)
                if assignment.prompt not in seen:
                    seen.add(assignment.prompt)
                    found.append(Errand(domain, name, assignment))
            errands[split] += found
    return errands


def _describe(errand: Errand) -> Any:
    one = errand.assignment
    calls = [[call.tool, dict(call.arguments)] for call in one.calls]
    goal = json.dumps(one.goal, sort_keys=True) if one.goal is not None else None
    return [errand.domain, errand.world, one.prompt, one.kind, calls, _plain(one.answer), goal]


def _plain(answer: Right | None) -> Any:
    return sorted(answer) if isinstance(answer, frozenset) else answer
