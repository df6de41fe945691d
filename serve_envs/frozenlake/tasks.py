"""The lakes: distinct solvable maps, divided into splits by what they show."""

from __future__ import annotations

import hashlib
import json
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from gymnasium.envs.toy_text.frozen_lake import generate_random_map

from rllib_agentic.errors import InputError

Cell = tuple[int, int]
Start = Literal["corner", "random"]
Corners = Literal["fixed", "random"]

MOVES: Mapping[str, Cell] = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}
"""Action to the change of row and column. The order is the order in which actions are listed."""

_DRAWS_PER_TASK = 200


@dataclass(frozen=True, slots=True)
class Lake:
    """One task.

    Attributes:
        rows: the map, a text a row: S start corner, F frozen, H hole, G goal, in the corner opposite to S.
        start: where the agent begins; the goal can be reached from there.
    """

    rows: tuple[str, ...]
    start: Cell

    def square(self, cell: Cell) -> str | None:
        """The letter at a cell, None off the map."""
        row, column = cell
        size = len(self.rows)
        return self.rows[row][column] if 0 <= row < size and 0 <= column < size else None

    def find(self, letter: str) -> Cell:
        """The cell of the first square with this letter; there is one S and one G."""
        row = next(number for number, squares in enumerate(self.rows) if letter in squares)
        return (row, self.rows[row].index(letter))

    def distances(self) -> dict[Cell, int]:
        """Fewest steps to the goal from every cell from which it can be reached (breadth-first from the goal)."""
        goal = self.find("G")
        found = {goal: 0}
        queue = deque([goal])
        while queue:
            row, column = queue.popleft()
            for d_row, d_column in MOVES.values():
                cell = (row + d_row, column + d_column)
                if cell not in found and self.square(cell) in ("S", "F"):
                    found[cell] = found[row, column] + 1
                    queue.append(cell)
        return found


@lru_cache(maxsize=8)
def make_splits(
    size: int, frozen_probability: float, start: Start, corners: Corners, counts: tuple[tuple[str, int], ...]
) -> dict[str, tuple[Lake, ...]]:
    """Draw the lakes of every split; no map occurs twice, within a split or in two.

    Maps come from Gymnasium's ``generate_random_map(seed=0, 1, ...)``, equal ones are dropped, and the splits take
    turns in proportion to their counts, so that all of them are drawn alike.

    Args:
        size: side of the square map.
        frozen_probability: chance that a square is ice and not a hole.
        start: ``corner`` (on S), or ``random``: any square, drawn by the task, from which the goal can be reached.
        corners: ``fixed`` (S top left, G bottom right), or ``random``: each map is turned by the task.
        counts: ``(split, number of tasks)`` pairs.

    Raises:
        InputError: there are not that many different maps.
    """
    wanted = sum(count for _, count in counts)
    owners = [split for split, count in counts for _ in range(count)]
    random.Random("frozenlake splits").shuffle(owners)
    splits: dict[str, list[Lake]] = {split: [] for split, _ in counts}
    seen: set[tuple[str, ...]] = set()
    for seed in range(_DRAWS_PER_TASK * wanted):
        rows = tuple(generate_random_map(size=size, p=frozen_probability, seed=seed))
        if corners == "random":
            rows = _turned(rows, quarters=random.Random(f"frozenlake corners {seed}").randrange(4))
        if rows in seen:
            continue
        splits[owners[len(seen)]].append(Lake(rows, _start_cell(rows, start, seed)))
        seen.add(rows)
        if len(seen) == wanted:
            return {split: tuple(lakes) for split, lakes in splits.items()}
    raise InputError(
        f"frozenlake: only {len(seen)} different maps of size {size} with frozen_probability {frozen_probability} were "
        f"found, {wanted} are wanted; ask for fewer tasks or a larger size"
    )


def splits_hash(splits: Mapping[str, tuple[Lake, ...]]) -> str:
    """Hash of all tasks of all splits, in order."""
    content = {split: [[*lake.rows, lake.start] for lake in lakes] for split, lakes in splits.items()}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _turned(rows: tuple[str, ...], quarters: int) -> tuple[str, ...]:
    for _ in range(quarters):
        rows = tuple("".join(column) for column in zip(*reversed(rows), strict=True))
    return rows


def _start_cell(rows: tuple[str, ...], start: Start, seed: int) -> Cell:
    lake = Lake(rows, (0, 0))
    if start == "corner":
        return lake.find("S")
    cells = sorted(cell for cell, steps in lake.distances().items() if steps > 0)
    return random.Random(f"frozenlake start {seed}").choice(cells)
