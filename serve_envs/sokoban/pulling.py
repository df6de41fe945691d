"""Positions found backwards: boxes are pulled off the goals, on sets of squares held as the bits of an integer."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from serve_envs.grid import Cell

_KEPT, _KEPT_OF_SEVERAL_BOXES = 24, 6


class Pulled(NamedTuple):
    """Where the boxes are, and where the player can walk."""

    boxes: frozenset[Cell]
    region: frozenset[Cell]


def pull_off(
    size: int, floor: Iterable[Cell], goals: Iterable[Cell], most: int, draw: random.Random
) -> list[list[Pulled]]:
    """Positions by how many pulls bring them about from the solution: that many pushes solve them, perhaps fewer.

    Breadth-first. Each depth keeps a drawn few, none twice; in small rooms with one box these are all, and the depth is
    then the fewest pushes.

    Args:
        size: side of the square map; its outermost squares are no floor.
        floor: squares that are no wall, goals included.
        goals: where the boxes stand in the end.
        most: the greatest depth wanted.
        draw: chooses which positions of a depth are kept.
    """
    squares, solved = _bits(size, floor), _bits(size, goals)
    kept = _KEPT if solved.bit_count() == 1 else _KEPT_OF_SEVERAL_BOXES
    layer = [(solved, region) for region in _regions(size, squares & ~solved)]
    seen = set(layer)
    layers = [layer]
    while layers[-1] and len(layers) <= most:
        layer = []
        for boxes, region in layers[-1]:
            for after, player in _pulls(size, squares, boxes, region):
                key = (after, _flood(size, squares & ~after, player))
                if key not in seen:
                    seen.add(key)
                    layer.append(key)
        layers.append(draw.sample(layer, kept) if len(layer) > kept else layer)
    return [[Pulled(_cells(size, boxes), _cells(size, region)) for boxes, region in one] for one in layers]


def _pulls(size: int, squares: int, boxes: int, region: int) -> Iterator[tuple[int, int]]:
    for box in _single_bits(boxes):
        for step in (-size, size, -1, 1):
            player, back = _shift(box, step), _shift(box, 2 * step)
            if player & region and back & squares & ~boxes:
                yield (boxes ^ box) | player, back


def _regions(size: int, free: int) -> list[int]:
    regions = []
    while free:
        regions.append(_flood(size, free, free & -free))
        free &= ~regions[-1]
    return regions


def _flood(size: int, free: int, start: int) -> int:
    region, before = start, 0
    while region != before:
        before = region
        region = (region | region << 1 | region >> 1 | region << size | region >> size) & free
    return region


def _shift(bit: int, step: int) -> int:
    return bit << step if step > 0 else bit >> -step


def _single_bits(bits: int) -> Iterator[int]:
    while bits:
        yield bits & -bits
        bits &= bits - 1


def _bits(size: int, cells: Iterable[Cell]) -> int:
    return sum(1 << (size * row + column) for row, column in cells)


def _cells(size: int, bits: int) -> frozenset[Cell]:
    return frozenset(divmod(bit.bit_length() - 1, size) for bit in _single_bits(bits))
