"""Generated mazes, divided into splits by what they show."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from serve_envs.grid import MOVES, Cell, canonical
from serve_envs.splits import Counts, fill_splits, hash_of

_DRAWS_PER_TASK = 40


@dataclass(frozen=True, slots=True)
class Maze:
    """One task.

    Attributes:
        size: cells a side.
        openings: pairs of neighbouring cells without a wall between them, the smaller first.
        start: where the agent begins.
        goal: where it has to go; there is a way.
    """

    size: int
    openings: frozenset[tuple[Cell, Cell]]
    start: Cell
    goal: Cell

    def target(self, cell: Cell, word: str) -> Cell | None:
        """Where a move leads; None where a wall is in the way."""
        ahead = (cell[0] + MOVES[word][0], cell[1] + MOVES[word][1])
        return ahead if (min(cell, ahead), max(cell, ahead)) in self.openings else None

    def distances(self) -> Mapping[Cell, int]:
        """Fewest steps to the goal from every cell (breadth-first from the goal)."""
        found = {self.goal: 0}
        queue = deque([self.goal])
        while queue:
            cell = queue.popleft()
            for word in MOVES:
                ahead = self.target(cell, word)
                if ahead is not None and ahead not in found:
                    found[ahead] = found[cell] + 1
                    queue.append(ahead)
        return found

    def draw(self, cell: Cell) -> tuple[str, ...]:
        """The map, a text a row: # wall, _ way, G goal, P the agent at ``cell``."""
        side = 2 * self.size + 1
        squares = [["#"] * side for _ in range(side)]
        for row in range(self.size):
            for column in range(self.size):
                squares[2 * row + 1][2 * column + 1] = "_"
        for one, other in self.openings:
            squares[one[0] + other[0] + 1][one[1] + other[1] + 1] = "_"
        squares[2 * self.goal[0] + 1][2 * self.goal[1] + 1] = "G"
        squares[2 * cell[0] + 1][2 * cell[1] + 1] = "P"
        return tuple("".join(row) for row in squares)


@lru_cache(maxsize=8)
def make_splits(size: int, loops: float, counts: Counts) -> dict[str, tuple[Maze, ...]]:
    """Mazes by split, each once; turned and mirrored ones count as the same.

    Args:
        size: cells a side.
        loops: share of the inner walls left by a maze without loops that are taken out.
        counts: how many tasks each split wants.

    Raises:
        InputError: there are not that many different mazes.
    """
    drawn = _draw_mazes(size, loops, _DRAWS_PER_TASK * sum(count for _, count in counts))
    return fill_splits("maze", drawn, counts, lambda maze: canonical(maze.draw(maze.start)))


def splits_hash(size: int, loops: float, counts: Counts) -> str:
    """Hash of all mazes of all splits, in order."""
    return hash_of(make_splits(size, loops, counts), lambda maze: maze.draw(maze.start))


@lru_cache(maxsize=4096)
def steps_to_goal(maze: Maze) -> Mapping[Cell, int]:
    """:meth:`Maze.distances`, kept."""
    return maze.distances()


def _draw_mazes(size: int, loops: float, draws: int) -> Iterator[Maze]:
    for seed in range(draws):
        draw = random.Random(f"maze {size} {loops} {seed}")
        openings = _dig(size, draw)
        walls = sorted(_inner_walls(size) - openings)
        openings |= set(draw.sample(walls, round(loops * len(walls))))
        goal = (draw.randrange(size), draw.randrange(size))
        maze = Maze(size, frozenset(openings), goal, goal)
        distances = maze.distances()
        wanted = draw.randint(1, max(distances.values()))
        start = draw.choice(sorted(cell for cell, steps in distances.items() if steps == wanted))
        yield Maze(size, maze.openings, start, goal)


def _dig(size: int, draw: random.Random) -> set[tuple[Cell, Cell]]:
    """A spanning tree of all cells: dig on from the newest cell, or now and then from an older one, which branches."""
    first = (draw.randrange(size), draw.randrange(size))
    reached, active = {first}, [first]
    openings: set[tuple[Cell, Cell]] = set()
    while active:
        place = len(active) - 1 if draw.random() < 0.8 else draw.randrange(len(active))
        row, column = active[place]
        solid = [
            (row + d_row, column + d_column)
            for d_row, d_column in MOVES.values()
            if 0 <= row + d_row < size
            and 0 <= column + d_column < size
            and (row + d_row, column + d_column) not in reached
        ]
        if not solid:
            active.pop(place)
            continue
        cell = draw.choice(solid)
        openings.add((min((row, column), cell), max((row, column), cell)))
        reached.add(cell)
        active.append(cell)
    return openings


def _inner_walls(size: int) -> set[tuple[Cell, Cell]]:
    across = {((row, column), (row, column + 1)) for row in range(size) for column in range(size - 1)}
    return across | {((row, column), (row + 1, column)) for row in range(size - 1) for column in range(size)}
