"""The lakes: solvable maps, divided into splits by what they show."""

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

SIDES: Mapping[str, tuple[str, str]] = {
    "Up": ("Left", "Right"),
    "Down": ("Left", "Right"),
    "Left": ("Up", "Down"),
    "Right": ("Up", "Down"),
}
"""Where a slip leads instead."""

_DRAWS_PER_TASK = 40


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

    def target(self, cell: Cell, move: str) -> Cell:
        """Where a move leads: one square on, or nowhere at the edge."""
        ahead = (cell[0] + MOVES[move][0], cell[1] + MOVES[move][1])
        return cell if self.square(ahead) is None else ahead

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
    """Draw the lakes of every split: no task occurs twice, and no map in two splits, mirrored or turned ones included.

    Maps come from Gymnasium's ``generate_random_map(seed=0, 1, ...)``. What a map shows decides its split, in
    proportion to the counts.

    Args:
        size: side of the square map.
        frozen_probability: chance that a square is ice and not a hole.
        start: ``corner`` (on S), or ``random``: any square, drawn by the task, from which the goal can be reached.
        corners: ``fixed`` (S top left, G bottom right), or ``random``: each map is turned by the task.
        counts: ``(split, number of tasks)`` pairs.

    Raises:
        InputError: there are not that many different tasks.
    """
    missing = dict(counts)
    splits: dict[str, dict[Lake, None]] = {split: {} for split in missing}
    for seed in range(_DRAWS_PER_TASK * sum(missing.values())):
        if not any(missing.values()):
            return {split: tuple(lakes) for split, lakes in splits.items()}
        rows = tuple(generate_random_map(size=size, p=frozen_probability, seed=seed))
        split = _split_of(rows, counts)
        draw = random.Random(f"frozenlake task {seed}")
        if corners == "random":
            rows = _turned(rows, quarters=draw.randrange(4))
        lake = Lake(rows, _start_cell(rows, start, draw))
        if missing[split] and lake not in splits[split]:
            splits[split][lake] = None
            missing[split] -= 1
    found = ", ".join(f"{split} {len(lakes)}" for split, lakes in splits.items())
    wanted = ", ".join(f"{split} {count}" for split, count in counts)
    raise InputError(
        f"frozenlake: there are not enough different tasks of size {size} with frozen_probability "
        f"{frozen_probability}: found {found}; wanted {wanted}. Ask for fewer tasks or a larger size"
    )


def splits_hash(splits: Mapping[str, tuple[Lake, ...]]) -> str:
    """Hash of all tasks of all splits, in order."""
    content = {split: [[*lake.rows, lake.start] for lake in lakes] for split, lakes in splits.items()}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _split_of(rows: tuple[str, ...], counts: tuple[tuple[str, int], ...]) -> str:
    # The mirror image about the diagonal from S to G is the one other map that turning cannot tell from this one.
    mirrored = tuple("".join(column) for column in zip(*rows, strict=True))
    names, weights = zip(*counts, strict=True)
    return random.Random(f"frozenlake map {min(rows, mirrored)}").choices(names, weights)[0]


def _turned(rows: tuple[str, ...], quarters: int) -> tuple[str, ...]:
    for _ in range(quarters):
        rows = tuple("".join(column) for column in zip(*reversed(rows), strict=True))
    return rows


def _start_cell(rows: tuple[str, ...], start: Start, draw: random.Random) -> Cell:
    lake = Lake(rows, (0, 0))
    if start == "corner":
        return lake.find("S")
    return draw.choice(sorted(cell for cell, steps in lake.distances().items() if steps > 0))
