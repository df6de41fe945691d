"""Shortest solutions, and what can still be solved."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from itertools import count

from serve_envs.grid import MOVES, Cell
from serve_envs.sokoban.room import Position, Room


def solve(room: Room, start: Position, max_positions: int = 40_000) -> tuple[str, ...] | None:
    """A solution with the fewest moves, by A*.

    The estimate is the sum over boxes of the fewest pushes to the nearest goal with no other box in the way: it never
    exceeds the moves that remain. A box from where no goal can be reached ends a branch.

    Args:
        room: the room.
        start: where to begin.
        max_positions: positions to expand before giving up.

    Returns:
        Moves; None where there is no solution, or none within ``max_positions``.
    """
    pushes = push_distances(room)
    estimate = _estimate(start, pushes)
    if estimate is None:
        return None
    tie = count()
    queue = [(estimate, next(tie), 0, start)]
    came_from: dict[Position, tuple[Position, str] | None] = {start: None}
    costs = {start: 0}
    expanded: set[Position] = set()
    while queue:
        _, _, cost, position = heapq.heappop(queue)
        if position in expanded:
            continue
        if room.solved(position):
            return _trace(came_from, position)
        expanded.add(position)
        if len(expanded) > max_positions:
            return None
        for word in MOVES:
            after = room.move(position, word)
            if after == position or costs.get(after, cost + 2) <= cost + 1:
                continue
            estimate = _estimate(after, pushes)
            if estimate is None:
                continue
            costs[after] = cost + 1
            came_from[after] = (position, word)
            heapq.heappush(queue, (cost + 1 + estimate, next(tie), cost + 1, after))
    return None


@lru_cache(maxsize=4096)
def push_distances(room: Room) -> Mapping[Cell, int]:
    """Fewest pushes from each square to the nearest goal for a box alone in the room, where there is a way.

    Breadth-first from the goals, pulling: a box came from ``cell`` if the player had room behind it.
    """
    found = dict.fromkeys(sorted(room.goals), 0)
    queue = deque(found)
    while queue:
        row, column = queue.popleft()
        for d_row, d_column in MOVES.values():
            cell = (row - d_row, column - d_column)
            behind = (row - 2 * d_row, column - 2 * d_column)
            if cell in room.floor and behind in room.floor and cell not in found:
                found[cell] = found[row, column] + 1
                queue.append(cell)
    return found


def _estimate(position: Position, pushes: Mapping[Cell, int]) -> int | None:
    total = 0
    for box in position.boxes:
        if box not in pushes:
            return None
        total += pushes[box]
    return total


def _trace(came_from: Mapping[Position, tuple[Position, str] | None], end: Position) -> tuple[str, ...]:
    words = []
    while step := came_from[end]:
        end, word = step
        words.append(word)
    return tuple(reversed(words))
