"""The tasks: a page and a seed. They are listed in a file, because what a page shows is known only to a browser."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rllib_agentic.errors import InputError, did_you_mean

_FILE = Path(__file__).with_name("tasks.json")
SPLITS = ("train", "validation", "test")


class PageTask(NamedTuple):
    """One task."""

    page: str
    seed: int


@cache
def listed() -> Mapping[str, Mapping[str, tuple[int, ...]]]:
    """Page to its seeds of each split. No two seeds of a page show the same at the beginning."""
    raw = json.loads(_FILE.read_text(encoding="utf-8"))
    return {page: {split: tuple(seeds.get(split, ())) for split in SPLITS} for page, seeds in raw.items()}


def make_splits(pages: tuple[str, ...]) -> dict[str, tuple[PageTask, ...]]:
    """The tasks of some pages; the pages take turns, so that the first tasks of a split are of all kinds.

    Raises:
        InputError: there is no such page, or a split would have no task.
    """
    known = listed()
    for page in pages:
        if page not in known:
            raise InputError(f"webnav: there is no page {page!r}. {did_you_mean(page, known)}")
    splits: dict[str, tuple[PageTask, ...]] = {}
    for split in SPLITS:
        longest = max((len(known[page][split]) for page in pages), default=0)
        splits[split] = tuple(
            PageTask(page, known[page][split][number])
            for number in range(longest)
            for page in pages
            if number < len(known[page][split])
        )
    if not all(splits.values()):
        raise InputError("webnav: these pages have too few different tasks for three splits; add others")
    return splits
