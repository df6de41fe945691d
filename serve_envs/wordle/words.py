"""The words, and which of them are answers of which split."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal

from serve_envs.splits import hash_of

Tier = Literal["very common", "common", "less common"]
TIERS: tuple[Tier, ...] = ("very common", "common", "less common")
"""How usual an answer is, by the size of the smallest list of SCOWL that has it: 10, 20, 35."""

_TRAIN, _VALIDATION = 0.7, 0.1


@cache
def answers_by_tier() -> Mapping[str, tuple[str, ...]]:
    """All answers, sorted, by how usual they are."""
    return {tier: tuple(words.split()) for tier, words in _content()["answers"].items()}


@cache
def all_guesses() -> tuple[str, ...]:
    """Every word that counts as a guess, sorted; answers are among them."""
    answers = [word for words in answers_by_tier().values() for word in words]
    return tuple(sorted([*answers, *_content()["other_guesses"].split()]))


@cache
def tier_of(answer: str) -> str:
    """How usual an answer is."""
    return next(tier for tier, words in answers_by_tier().items() if answer in words)


@lru_cache(maxsize=8)
def make_splits(tiers: tuple[Tier, ...]) -> dict[str, tuple[str, ...]]:
    """Answers by split: 70 % train, 10 % validation, 20 % test of each tier, shuffled by a fixed seed.

    A word is in the same split whichever tiers are asked for.

    Args:
        tiers: some of :data:`TIERS`.
    """
    splits: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for tier in tiers:
        words = list(answers_by_tier()[tier])
        random.Random(f"wordle {tier}").shuffle(words)
        first, second = round(_TRAIN * len(words)), round((_TRAIN + _VALIDATION) * len(words))
        splits["train"] += words[:first]
        splits["validation"] += words[first:second]
        splits["test"] += words[second:]
    for split, chosen in splits.items():
        random.Random(f"wordle {split}").shuffle(chosen)
    return {split: tuple(chosen) for split, chosen in splits.items()}


def splits_hash(tiers: tuple[Tier, ...]) -> str:
    """Hash of all answers of all splits, in order."""
    return hash_of(make_splits(tiers), str)


@cache
def _content() -> dict[str, Any]:
    return json.loads(files("serve_envs.wordle").joinpath("words.json").read_text(encoding="utf-8"))
