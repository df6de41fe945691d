"""Generated rooms: carved by a random walk, the boxes pulled off their goals."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache

from serve_envs.grid import MOVES, Cell, canonical
from serve_envs.sokoban.pulling import pull_off
from serve_envs.sokoban.room import Position, Room, read_room
from serve_envs.splits import Counts, fill_splits, hash_of

_DRAWS_PER_TASK = 60
_GOAL_DRAWS = 3


@lru_cache(maxsize=8)
def make_splits(
    size: int, boxes: int, pushes: tuple[int, int], counts: Counts
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Maps by split, each once; turned and mirrored maps count as the same.

    Args:
        size: side of the square map, outer walls included.
        boxes: boxes, and goals.
        pushes: fewest and most pulls by which the boxes leave their goals.
        counts: how many tasks each split wants.

    Raises:
        InputError: there are not that many different maps.
    """
    drawn = _draw_maps(size, boxes, pushes, _DRAWS_PER_TASK * sum(count for _, count in counts))
    return fill_splits("sokoban", drawn, counts, canonical)


def splits_hash(size: int, boxes: int, pushes: tuple[int, int], counts: Counts) -> str:
    """Hash of all maps of all splits, in order."""
    return hash_of(make_splits(size, boxes, pushes, counts), list)


@lru_cache(maxsize=4096)
def load(rows: tuple[str, ...]) -> tuple[Room, Position]:
    """Room and first position of a task."""
    return read_room(rows)


def _draw_maps(size: int, boxes: int, pushes: tuple[int, int], draws: int) -> Iterator[tuple[str, ...]]:
    for seed in range(draws):
        draw = random.Random(f"sokoban {size} {boxes} {pushes} {seed}")
        floor = _carve(size, boxes, draw)
        choices = [frozenset(draw.sample(sorted(floor), boxes)) for _ in range(_GOAL_DRAWS if boxes == 1 else 1)]
        dug = [(goals, pull_off(size, floor, goals, pushes[1], draw)) for goals in choices]
        goals, layers = max(dug, key=lambda one: len(one[1]))
        deep = [depth for depth in range(pushes[0], len(layers)) if layers[depth]]
        if deep:
            start = draw.choice(layers[draw.choice(deep)])
            player = draw.choice(sorted(start.region))
            yield Room(size, size, floor, goals).draw(Position(player, start.boxes))


def _carve(size: int, boxes: int, draw: random.Random) -> frozenset[Cell]:
    """A connected floor: a walk that turns now and then and widens as it goes."""
    inner = size - 2
    cell = (draw.randint(1, inner), draw.randint(1, inner))
    floor = {cell}
    step = draw.choice(list(MOVES.values()))
    wanted = max(boxes + 3, round(inner * inner * draw.uniform(0.55, 0.95)))
    while len(floor) < wanted:
        if draw.random() < 0.4:
            step = draw.choice(list(MOVES.values()))
        beside = (cell[0] + step[1], cell[1] + step[0])
        ahead = (cell[0] + step[0], cell[1] + step[1])
        if draw.random() < 0.4 and _inside(beside, inner):
            floor.add(beside)
        if _inside(ahead, inner):
            cell = ahead
            floor.add(cell)
        else:
            step = draw.choice(list(MOVES.values()))
    return frozenset(floor)


def _inside(cell: Cell, inner: int) -> bool:
    return 1 <= cell[0] <= inner and 1 <= cell[1] <= inner
