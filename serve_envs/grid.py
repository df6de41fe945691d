"""Square grids: the four moves, and which drawings are the same but for turning and mirroring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Cell = tuple[int, int]
"""Row and column, from the upper left."""

MOVES: Mapping[str, Cell] = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}
"""Action to the change of row and column. The order is the order in which actions are listed."""


def canonical(rows: Sequence[str]) -> str:
    """One text for a drawing and its seven other forms, turned and mirrored.

    Example:
        >>> canonical(["ab", "cd"]) == canonical(["db", "ca"])
        True
    """
    forms = []
    for form in (tuple(rows), _transposed(rows)):
        for _ in range(4):
            form = _transposed(form[::-1])
            forms.append("\n".join(form))
    return min(forms)


def towards(here: Cell, there: Cell) -> str:
    """Where a cell lies as the crow flies, in words.

    Example:
        >>> towards((0, 0), (3, 1))
        '3 down, 1 right'
    """
    down, right = there[0] - here[0], there[1] - here[1]
    legs = [f"{abs(down)} {'down' if down > 0 else 'up'}"] if down else []
    legs += [f"{abs(right)} {'right' if right > 0 else 'left'}"] if right else []
    return ", ".join(legs) or "here"


def _transposed(rows: Sequence[str]) -> tuple[str, ...]:
    return tuple("".join(column) for column in zip(*rows, strict=True))
