"""The goals: all items that can be crafted, divided into splits that are alike in depth."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from serve_envs.textcraft.recipes import Recipe, RecipeBook, altered_book, recipe_book

_TRAIN, _VALIDATION = 0.7, 0.1


@lru_cache(maxsize=32)
def make_splits(depths: tuple[int, ...]) -> dict[str, tuple[str, ...]]:
    """Goals by split: 70 % train, 10 % validation, 20 % test of each depth, shuffled by a fixed seed.

    A goal is in the same split whichever depths are asked for.

    Args:
        depths: which goals, by their crafting depth (1 to 4).
    """
    splits: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    by_depth = recipe_book().depth
    for depth in sorted(set(depths)):
        goals = sorted(goal for goal, its_depth in by_depth.items() if its_depth == depth)
        random.Random(f"textcraft depth {depth}").shuffle(goals)
        first, second = round(_TRAIN * len(goals)), round((_TRAIN + _VALIDATION) * len(goals))
        splits["train"] += goals[:first]
        splits["validation"] += goals[first:second]
        splits["test"] += goals[second:]
    for split, goals in splits.items():
        random.Random(f"textcraft {split}").shuffle(goals)
    return {split: tuple(goals) for split, goals in splits.items()}


def splits_hash(splits: Mapping[str, tuple[str, ...]]) -> str:
    """Hash of all goals of all splits, in order."""
    return hashlib.sha256(json.dumps(splits, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Assignment:
    """One task as the agent meets it: the goal, and the recipes that it is shown, in order."""

    goal: str
    recipes: tuple[Recipe, ...]
    book: RecipeBook


@lru_cache(maxsize=1024)
def make_assignment(goal: str, distractors: int, book_number: int = 0) -> Assignment:
    """Choose what is shown: every recipe under the goal, and others that take the same ingredients, mixed.

    One goal always looks the same in one book, so that a group of episodes shares its prompt.

    Args:
        goal: an item with a depth.
        distractors: the most recipes that do not help.
        book_number: 0 for the package's recipes, more for those of ``altered_book``.
    """
    book = altered_book(book_number) if book_number else recipe_book()
    helpful = book.closure(goal)
    known = set(helpful)
    others = {
        other: None
        for recipe in helpful
        for part in recipe.ingredients
        for other in book.uses.get(part.name, ())
        if other not in known
    }
    draw = random.Random(f"textcraft {goal}" + (f" book {book_number}" if book_number else ""))
    shown = helpful + draw.sample(list(others), min(distractors, len(others)))
    draw.shuffle(shown)
    return Assignment(goal, tuple(shown), book)
