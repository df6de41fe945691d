"""The questions of every split, from a fixed file."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from serve_envs.splits import hash_of

CATEGORIES = ("look up", "aggregate", "group and rank", "join", "nested")


class Question(NamedTuple):
    """One task.

    Attributes:
        text: what is asked.
        sql: a query that answers it.
        ordered: whether the order of the rows matters.
        category: what it takes to answer it.
    """

    text: str
    sql: str
    ordered: bool
    category: str


@cache
def make_splits(categories: tuple[str, ...]) -> dict[str, tuple[Question, ...]]:
    """Questions by split, as in ``tasks.json``.

    Args:
        categories: some of :data:`CATEGORIES`.
    """
    content = json.loads(files("serve_envs.sqlgym").joinpath("tasks.json").read_text(encoding="utf-8"))
    return {
        split: tuple(question for one in questions if (question := Question(*one)).category in categories)
        for split, questions in content.items()
    }


def splits_hash(categories: tuple[str, ...]) -> str:
    """Hash of all questions of all splits, in order."""
    return hash_of(make_splits(categories), list)
