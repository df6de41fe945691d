"""What the agent sees of the lake, as text."""

from __future__ import annotations

from collections.abc import Set

from serve_envs.frozenlake.tasks import MOVES, Cell, Lake


def draw_map(lake: Lake, cell: Cell) -> str:
    """The whole lake, a line a row: A the agent, F ice, H hole, G goal."""
    rows = [list(row.replace("S", "F")) for row in lake.rows]
    rows[cell[0]][cell[1]] = "A"
    return "\n".join(" ".join(row) for row in rows)


def describe(lake: Lake, cell: Cell, walked: Set[Cell]) -> str:
    """What lies around the agent, and where the goal is as the crow flies.

    ``Ice`` are the ways over squares where it has not been; in a dead end, ``Back`` are those where it has. Edges and
    holes are not named. The goal square counts as ice.

    Args:
        lake: the map.
        cell: where the agent stands.
        walked: where it has been.
    """
    around = {word: target for word in MOVES if (target := lake.target(cell, word)) != cell}
    open_ways = [word for word, target in around.items() if lake.square(target) != "H"]
    fresh = [word for word in open_ways if around[word] not in walked]
    tracks = [word for word in open_ways if around[word] in walked]
    goal = lake.find("G")
    down, right = goal[0] - cell[0], goal[1] - cell[1]
    legs = [f"{abs(down)} {'down' if down > 0 else 'up'}"] if down else []
    legs += [f"{abs(right)} {'right' if right > 0 else 'left'}"] if right else []
    ways = f"Ice: {', '.join(fresh)}." if fresh else f"Back: {', '.join(tracks)}."
    return f"{ways} Goal: {', '.join(legs)}."
