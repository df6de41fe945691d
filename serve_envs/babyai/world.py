"""The state of a level, as text that is equal exactly for equal states."""

from __future__ import annotations

import hashlib
from typing import Any


def state_key(level: Any) -> str:
    """Hash of the grid, boxes' contents included, the agent, what it carries, the mission and its progress."""
    things = [None if thing is None else _describe(thing) for thing in level.grid.grid]
    agent = (int(level.agent_pos[0]), int(level.agent_pos[1]), int(level.agent_dir))
    carrying = _describe(level.carrying) if level.carrying else None
    state = (level.width, things, agent, carrying, level.mission, _progress(level.instrs))
    return hashlib.sha256(repr(state).encode()).hexdigest()[:16]


def _describe(thing: Any) -> tuple[Any, ...]:
    state = (thing.is_open, thing.is_locked) if thing.type == "door" else ()
    contents = getattr(thing, "contains", None)
    return (thing.type, thing.color, state, _describe(contents) if contents else None)


def _progress(instruction: Any) -> tuple[Any, ...]:
    done = tuple(getattr(instruction, name, None) for name in ("a_done", "b_done"))
    parts = [getattr(instruction, name) for name in ("instr_a", "instr_b") if hasattr(instruction, name)]
    return (*done, *map(_progress, parts))
