"""The best way over a lake."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from serve_envs.frozenlake.tasks import MOVES, SIDES, Cell, Lake

_DISCOUNT = 0.99
_SWEEPS = 500


@lru_cache(maxsize=256)
def best_moves(lake: Lake, slip: float) -> Mapping[Cell, str]:
    """The best action on every square of ice from which the goal can be reached.

    Without slipping this is the first step of a shortest way; with it, value iteration on the chance to arrive,
    discounted a little so that arriving sooner is better.
    """
    distances = lake.distances()
    if not slip:
        return {
            cell: min(MOVES, key=lambda move, at=cell: distances.get(lake.target(at, move), len(distances) + 1))  # type: ignore[misc]
            for cell, steps in distances.items()
            if steps
        }
    values = {cell: float(steps == 0) for cell, steps in distances.items()}

    def worth(cell: Cell, move: str) -> float:
        ahead, sides = (1 - 2 * slip) * values.get(lake.target(cell, move), 0.0), SIDES[move]
        return _DISCOUNT * (ahead + slip * sum(values.get(lake.target(cell, side), 0.0) for side in sides))

    ice = [cell for cell, steps in distances.items() if steps]
    for _ in range(_SWEEPS):
        change = 0.0
        for cell in ice:
            best = max(worth(cell, move) for move in MOVES)
            change, values[cell] = max(change, abs(best - values[cell])), best
        if change < 1e-9:
            break
    return {cell: max(MOVES, key=lambda move, at=cell: worth(at, move)) for cell in ice}  # type: ignore[misc]
