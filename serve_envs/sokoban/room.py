"""A Sokoban room and its rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from serve_envs.grid import MOVES, Cell

DRAWING = {"wall": "#", "floor": "_", "goal": "O", "box": "X", "box on goal": "V", "player": "P", "player on goal": "S"}
"""The letter of each square on the map."""


class Position(NamedTuple):
    """What changes in a room: where the player stands and where the boxes are."""

    player: Cell
    boxes: frozenset[Cell]


@dataclass(frozen=True, slots=True)
class Room:
    """What does not change.

    Attributes:
        height: rows.
        width: columns.
        floor: every square that is no wall, goals included.
        goals: where the boxes have to go; as many as boxes.
    """

    height: int
    width: int
    floor: frozenset[Cell]
    goals: frozenset[Cell]

    def move(self, position: Position, word: str) -> Position:
        """Walk or push one square; where that cannot be, the position itself."""
        d_row, d_column = MOVES[word]
        ahead = (position.player[0] + d_row, position.player[1] + d_column)
        if ahead not in self.floor:
            return position
        if ahead not in position.boxes:
            return Position(ahead, position.boxes)
        beyond = (ahead[0] + d_row, ahead[1] + d_column)
        if beyond not in self.floor or beyond in position.boxes:
            return position
        return Position(ahead, (position.boxes - {ahead}) | {beyond})

    def solved(self, position: Position) -> bool:
        """Whether every box is on a goal."""
        return position.boxes == self.goals

    def draw(self, position: Position) -> tuple[str, ...]:
        """The map, a text a row."""
        return tuple(
            "".join(self._letter((row, column), position) for column in range(self.width)) for row in range(self.height)
        )

    def _letter(self, cell: Cell, position: Position) -> str:
        if cell not in self.floor:
            return DRAWING["wall"]
        kind = "box" if cell in position.boxes else "player" if cell == position.player else ""
        if cell in self.goals:
            return DRAWING[f"{kind} on goal" if kind else "goal"]
        return DRAWING[kind or "floor"]


def read_room(rows: Sequence[str]) -> tuple[Room, Position]:
    """The room and the position that a map shows; the inverse of :meth:`Room.draw`."""
    cells = {(row, column): letter for row, line in enumerate(rows) for column, letter in enumerate(line)}
    room = Room(
        height=len(rows),
        width=len(rows[0]),
        floor=frozenset(cell for cell, letter in cells.items() if letter != "#"),
        goals=frozenset(cell for cell, letter in cells.items() if letter in "OVS"),
    )
    player = next(cell for cell, letter in cells.items() if letter in "PS")
    return room, Position(player, frozenset(cell for cell, letter in cells.items() if letter in "XV"))
