"""Write ``tasks.json``: which seeds of each level belong to which split. ``python -m serve_envs.babyai.make_tasks``.

What a seed lays out decides its split, so that no layout is in two. Left out are seeds whose generation overruns
Python's stack (what they give depends on how deep the caller stood), and those that the expert does not solve: some
cannot be solved at all, such as two doors in order in the ``Debug`` levels, where the package counts the first opening
twice.
"""

from __future__ import annotations

import json
import random
from importlib.metadata import version
from pathlib import Path

from minigrid.envs.babyai.core import roomgrid_level

from serve_envs.babyai.expert import Expert
from serve_envs.babyai.levels import level_ids, make_level
from serve_envs.babyai.tasks import SPLITS
from serve_envs.babyai.world import state_key

PER_LEVEL = {"train": 40, "validation": 5, "test": 10}
_MOST_SEEDS = 1000


def split_of(key: str) -> str:
    """The split of a layout, by the hash of its first state."""
    return random.Random(f"babyai {key}").choices(SPLITS, [PER_LEVEL[split] for split in SPLITS])[0]


def seeds_of(level: str) -> dict[str, list[int]]:
    """The first seeds of a level that fill its splits, or all that differ."""
    found: dict[str, list[int]] = {split: [] for split in SPLITS}
    seen: set[str] = set()
    said: list[str] = []
    roomgrid_level.print = lambda *words: said.append(str(words[0]))  # type: ignore[attr-defined]
    for seed in range(_MOST_SEEDS):
        said.clear()
        key = state_key(make_level(level, seed))
        split = split_of(key)
        if key in seen or any("Timeout" in words for words in said):
            continue
        if len(found[split]) < PER_LEVEL[split] and Expert(level, seed).solves():
            seen.add(key)
            found[split].append(seed)
        if all(len(found[split]) == PER_LEVEL[split] for split in SPLITS):
            break
    return found


def main() -> None:
    """Write the file beside this module."""
    content = {"minigrid": version("minigrid"), "levels": {level: seeds_of(level) for level in level_ids()}}
    text = json.dumps(content, separators=(",", ":")).replace('"},"', '"},\n"').replace("]},", "]},\n")
    Path(__file__).with_name("tasks.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
