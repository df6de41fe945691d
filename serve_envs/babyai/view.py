"""What the agent sees, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from serve_envs.grid import Cell

THINGS = ("ball", "box", "key", "door")


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing in sight.

    Attributes:
        name: as the agent may call it, for example ``red ball 1``; unique in this view.
        kind: ball, box, key or door.
        colour: its colour.
        state: ``open``, ``closed`` or ``locked`` for a door, else ``""``.
        ahead: squares in front of the agent.
        right: squares to its right; negative to the left.
        at: column and row in the world.
    """

    name: str
    kind: str
    colour: str
    state: str
    ahead: int
    right: int
    at: Cell


@dataclass(frozen=True, slots=True)
class View:
    """Everything in sight.

    Attributes:
        things: nearest first.
        free: squares in sight that can be walked on, the agent's own included.
        reach: how many squares are free ahead, to the left and to the right.
        carrying: what the agent holds, for example ``red key``; ``""`` for nothing.
    """

    things: tuple[Seen, ...]
    free: frozenset[Cell]
    reach: tuple[int, int, int]
    carrying: str


def look(level: Any) -> View:
    """What is in sight on a level now."""
    grid, visible = level.gen_obs_grid()
    middle, last = grid.width // 2, grid.height - 1
    forward = (int(level.dir_vec[0]), int(level.dir_vec[1]))
    rightward = (-forward[1], forward[0])
    here = (int(level.agent_pos[0]), int(level.agent_pos[1]))

    def place(ahead: int, right: int) -> Cell:
        return (
            here[0] + ahead * forward[0] + right * rightward[0],
            here[1] + ahead * forward[1] + right * rightward[1],
        )

    free = {here}
    found = []
    for column in range(grid.width):
        for row in range(grid.height):
            ahead, right = last - row, column - middle
            if not visible[column, row] or not (ahead or right):
                continue
            thing = grid.get(column, row)
            if thing is None or thing.can_overlap():
                free.add(place(ahead, right))
            if thing is not None and thing.type in THINGS:
                found.append((ahead + abs(right), ahead, right, thing))
    found.sort(key=lambda one: one[:3])
    return View(
        things=tuple(_name_all([(thing, ahead, right, place(ahead, right)) for _, ahead, right, thing in found])),
        free=frozenset(free),
        reach=(
            _run([place(ahead, 0) for ahead in range(1, last + 1)], free),
            _run([place(0, -side) for side in range(1, middle + 1)], free),
            _run([place(0, side) for side in range(1, middle + 1)], free),
        ),
        carrying=f"{level.carrying.color} {level.carrying.type}" if level.carrying else "",
    )


def describe(mission: str, view: View) -> str:
    """The observation's text."""
    things = "; ".join(f"{seen.name}: {_where(seen)}" for seen in view.things) or "nothing but floor and walls"
    ahead, left, right = view.reach
    lines = [
        f"Mission: {mission}.",
        f"You see {things}.",
        f"Free squares: {ahead} ahead, {left} left, {right} right.",
    ]
    if view.carrying:
        lines.append(f"You carry a {view.carrying}.")
    return "\n".join(lines)


def door_state(door: Any) -> str:
    """``open``, ``closed`` or ``locked``."""
    return "open" if door.is_open else "locked" if door.is_locked else "closed"


def _where(seen: Seen) -> str:
    legs = [f"{seen.ahead} ahead"] if seen.ahead else []
    legs += [f"{abs(seen.right)} {'right' if seen.right > 0 else 'left'}"] if seen.right else []
    return ", ".join(legs)


def _name_all(found: Sequence[tuple[Any, int, int, Cell]]) -> list[Seen]:
    counts: Counter[str] = Counter()
    things = []
    for thing, ahead, right, at in found:
        state = door_state(thing) if thing.type == "door" else ""
        kind = " ".join(filter(None, (thing.color, state, thing.type)))
        counts[kind] += 1
        things.append(Seen(f"{kind} {counts[kind]}", thing.type, thing.color, state, ahead, right, at))
    return things


def _run(cells: Sequence[Cell], free: set[Cell]) -> int:
    return next((number for number, cell in enumerate(cells) if cell not in free), len(cells))
