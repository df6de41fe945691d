"""What the agent may do now: each action's text, and the package's own steps that carry it out."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from serve_envs.babyai.view import Seen, View
from serve_envs.grid import Cell

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
"""The numbers that the package gives its steps."""

PRIMITIVES: Mapping[str, int] = {
    "turn left": LEFT,
    "turn right": RIGHT,
    "move forward": FORWARD,
    "pick up": PICKUP,
    "drop": DROP,
    "toggle": TOGGLE,
}
"""Actions of one step."""

Pose = tuple[int, int, int]
Steps = tuple[int, ...]

_VECTORS = ((1, 0), (0, 1), (-1, 0), (0, -1))


def list_options(level: Any, view: View, *, with_high_level: bool) -> dict[str, Steps]:
    """Every admissible action that can change something, with its steps.

    High-level actions walk over squares in sight only, by the fewest steps.

    Args:
        level: the package's environment.
        view: what is in sight there.
        with_high_level: whether to list ``go to``, ``pick up NAME`` and the ways through doors too.
    """
    options: dict[str, Steps] = {"turn left": (LEFT,), "turn right": (RIGHT,)}
    ahead = level.grid.get(*level.front_pos)
    if ahead is None or ahead.can_overlap():
        options["move forward"] = (FORWARD,)
    if ahead is not None and ahead.can_pickup() and level.carrying is None:
        options["pick up"] = (PICKUP,)
    if ahead is None and level.carrying is not None:
        options["drop"] = (DROP,)
    if ahead is not None and (ahead.type == "box" or (ahead.type == "door" and _opens(level, ahead))):
        options["toggle"] = (TOGGLE,)
    if with_high_level:
        ways = _ways(level, view)
        for seen in view.things:
            if seen.at in ways:
                options |= _towards(level, seen, ways[seen.at])
    return options


def _towards(level: Any, seen: Seen, way: Steps) -> dict[str, Steps]:
    options = {f"go to {seen.name}": way} if way else {}
    if seen.kind != "door":
        if level.carrying is None:
            options[f"pick up {seen.name}"] = (*way, PICKUP)
    elif seen.state == "open":
        options[f"go through {seen.name}"] = (*way, FORWARD, FORWARD)
    elif _opens(level, level.grid.get(*seen.at)):
        options[f"toggle and go through {seen.name}"] = (*way, TOGGLE, FORWARD, FORWARD)
    return options


def _opens(level: Any, door: Any) -> bool:
    if not door.is_locked:
        return True
    return level.carrying is not None and level.carrying.type == "key" and level.carrying.color == door.color


def _ways(level: Any, view: View) -> dict[Cell, Steps]:
    """Fewest steps to stand before each thing in sight, facing it. Breadth-first over square and direction."""
    things = {seen.at for seen in view.things}
    start: Pose = (int(level.agent_pos[0]), int(level.agent_pos[1]), int(level.agent_dir))
    found: dict[Pose, Steps] = {start: ()}
    queue = deque([start])
    ways: dict[Cell, Steps] = {}
    while queue and len(ways) < len(things):
        pose = queue.popleft()
        x, y, facing = pose
        front = (x + _VECTORS[facing][0], y + _VECTORS[facing][1])
        if front in things:
            ways.setdefault(front, found[pose])
        nexts: list[tuple[Pose, int]] = [((x, y, (facing - 1) % 4), LEFT), ((x, y, (facing + 1) % 4), RIGHT)]
        if front in view.free:
            nexts.append(((*front, facing), FORWARD))
        for after, step in nexts:
            if after not in found:
                found[after] = (*found[pose], step)
                queue.append(after)
    return ways
