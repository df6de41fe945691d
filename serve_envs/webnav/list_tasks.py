"""``python -m serve_envs.webnav.list_tasks [PAGE ...]``: write down which seeds of a page show different tasks."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from serve_envs.webnav.browser_env import browser_program
from serve_envs.webnav.expert import SOLVERS
from serve_envs.webnav.miniwob_pages import MiniWobPages
from serve_envs.webnav.view import View

_TRIED = 60
_KEPT = {"train": 44, "validation": 6, "test": 10}
_FEWEST = 12  # a page with fewer different tasks is for training alone


def main(pages: list[str]) -> None:
    """Write ``tasks.json`` beside this file; what it says of other pages stays.

    Args:
        pages: the pages to try; all that have a solver and are not yet listed where none is named.
    """
    file = Path(__file__).with_name("tasks.json")
    browser = MiniWobPages(browser_program())
    listed: dict[str, dict[str, list[int]]] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for page in pages or [page for page in SOLVERS if page not in listed]:
        by_view: dict[tuple[str, str], int] = {}
        for seed in range(_TRIED):
            view = View.of(browser.begin("listing", page, seed))
            by_view.setdefault((view.goal, view.text()), seed)
        seeds = list(by_view.values())
        listed[page] = {"train": seeds[: _KEPT["train"]]}
        if len(seeds) >= _FEWEST:
            random.Random(page).shuffle(seeds)
            parts, taken = {}, 0
            for split, wanted in _KEPT.items():
                count = min(wanted, max(1, len(seeds) * wanted // sum(_KEPT.values())))
                parts[split] = sorted(seeds[taken : taken + count])
                taken += count
            listed[page] = parts
        ordered = {page: listed[page] for page in SOLVERS if page in listed}
        file.write_text(json.dumps(ordered) + "\n", encoding="utf-8")
        print(page, {split: len(kept) for split, kept in listed[page].items()}, flush=True)
    browser.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
