"""The tasks of the package ``bfcl-eval``, divided so that the variants of a scenario stay together."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rllib_agentic.errors import InputError
from serve_envs.bfcl.calls import GoldCall, read_gold
from serve_envs.splits import hash_of

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")

# Their right calls cannot be made: a text where the function takes a number; a function that does not come in time.
_FAULTY = frozenset({*(f"multi_turn_{category}_173" for category in CATEGORIES), "multi_turn_miss_func_49"})

_SHARES = {"train": 140, "validation": 20, "test": 40}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One task.

    Attributes:
        name: the package's id, for example ``multi_turn_base_0``.
        category: one of :data:`CATEGORIES`.
        services: names of the classes that take part.
        state: first state of each service.
        requests: what the user says in each turn; ``""`` where there are only new functions.
        gold: the right calls of each turn; none where the agent cannot know enough to act.
        added: names of functions that can only be called from a turn on, by turn.
    """

    name: str
    category: str
    services: tuple[str, ...]
    state: Mapping[str, Any]
    requests: tuple[str, ...]
    gold: tuple[tuple[GoldCall, ...], ...]
    added: Mapping[int, tuple[str, ...]]

    @property
    def long_context(self) -> bool:
        """Whether the services are filled with much that does not matter."""
        return self.category == "long_context"


@cache
def all_scenarios(category: str) -> tuple[Scenario, ...]:
    """The 200 tasks of a category, in the package's order.

    Raises:
        InputError: the package is not installed.
    """
    folder = data_folder()
    entries = _lines(folder / f"BFCL_v4_multi_turn_{category}.json")
    gold = {
        one["id"]: one["ground_truth"] for one in _lines(folder / f"possible_answer/BFCL_v4_multi_turn_{category}.json")
    }
    return tuple(
        Scenario(
            name=entry["id"],
            category=category,
            services=tuple(entry["involved_classes"]),
            state=entry["initial_config"],
            requests=tuple("\n".join(message["content"] for message in turn) for turn in entry["question"]),
            gold=tuple(tuple(map(read_gold, calls)) for calls in gold[entry["id"]]),
            added={int(turn): tuple(names) for turn, names in entry.get("missed_function", {}).items()},
        )
        for entry in entries
    )


@lru_cache(maxsize=16)
def make_splits(categories: tuple[str, ...]) -> dict[str, tuple[Scenario, ...]]:
    """Tasks by split: 140 / 20 / 40 of the 200 scenarios, shuffled by a fixed seed, each in all categories asked for.

    Five tasks whose right calls the functions do not take are left out.

    Args:
        categories: some of :data:`CATEGORIES`.
    """
    numbers = list(range(sum(_SHARES.values())))
    random.Random("bfcl").shuffle(numbers)
    splits = {}
    for split, count in _SHARES.items():
        chosen, numbers = numbers[:count], numbers[count:]
        tasks = (all_scenarios(category)[number] for number in chosen for category in categories)
        splits[split] = tuple(task for task in tasks if task.name not in _FAULTY)
    return splits


@lru_cache(maxsize=16)
def splits_hash(categories: tuple[str, ...]) -> str:
    """Hash of all tasks of all splits, in order."""
    return hash_of(make_splits(categories), lambda one: [one.name, one.requests, repr(one.gold), dict(one.state)])


def data_folder() -> Path:
    """Where the package keeps its data; the package itself is not imported.

    Raises:
        InputError: it is not installed.
    """
    spec = find_spec("bfcl_eval")
    if spec is None or spec.origin is None:
        commands = "pip install 'rllib-agentic[bfcl]' && pip install --no-deps bfcl-eval"
        raise InputError(f"bfcl: the data are not installed; run: {commands}")
    return Path(spec.origin).parent / "data"


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
