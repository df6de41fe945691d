"""Dividing generated tasks into splits that share none."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rllib_agentic.errors import InputError

TaskT = TypeVar("TaskT")

Counts = tuple[tuple[str, int], ...]
"""``(split, number of tasks)`` pairs."""


def fill_splits(
    name: str, drawn: Iterable[TaskT], counts: Counts, identity: Callable[[TaskT], str]
) -> dict[str, tuple[TaskT, ...]]:
    """Deal tasks to splits until every split is full. What a task is decides its split, so that none is in two.

    Args:
        name: of the environment, for messages.
        drawn: candidates, in a fixed order; they may repeat, and the supply may end.
        counts: how many tasks each split wants.
        identity: equal for tasks that count as the same.

    Raises:
        InputError: the candidates ran out.
    """
    names, weights = zip(*counts, strict=True)
    missing = dict(counts)
    splits: dict[str, list[TaskT]] = {split: [] for split in names}
    seen: set[str] = set()
    for task in drawn:
        key = identity(task)
        split = random.Random(f"{name} split {key}").choices(names, weights)[0]
        if missing[split] and key not in seen:
            seen.add(key)
            splits[split].append(task)
            missing[split] -= 1
        if not any(missing.values()):
            return {split: tuple(tasks) for split, tasks in splits.items()}
    found = ", ".join(f"{split} {len(tasks)}" for split, tasks in splits.items())
    wanted = ", ".join(f"{split} {count}" for split, count in counts)
    raise InputError(
        f"{name}: there are not enough different tasks with these arguments: found {found}; wanted {wanted}. Ask for "
        f"fewer tasks, or for larger ones"
    )


def checked_counts(name: str, train: int, validation: int, test: int) -> Counts:
    """The sizes of the three splits, as :func:`fill_splits` wants them.

    Raises:
        InputError: one is negative, or all are 0.
    """
    if min(train, validation, test) < 0 or train + validation + test == 0:
        raise InputError(f"{name}: train, validation and test must not be negative, nor all 0")
    return (("train", train), ("validation", validation), ("test", test))


def hash_of(splits: Mapping[str, Sequence[Any]], describe: Callable[[Any], Any]) -> str:
    """Hash of all tasks of all splits, in order.

    Args:
        splits: the tasks.
        describe: everything that makes up a task, as plain JSON.
    """
    content = {split: [describe(task) for task in tasks] for split, tasks in splits.items()}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
