"""What the installed package ``alfworld`` says of rooms, things and goals; nothing of it is copied here."""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_STEP = 0.25  # metres between the places where an agent can stand, as in the package's constants
_TURN = 90


@dataclass(frozen=True, slots=True)
class Receptacle:
    """Something that stands in a room and can hold things.

    Attributes:
        id: as in the package's planning problems.
        kind: ``Cabinet``, ``Fridge``, ...
        location: where one stands before it; several may share one.
    """

    id: str
    kind: str
    location: str


@dataclass(frozen=True, slots=True)
class FloorPlan:
    """One of the 120 rooms of AI2-THOR.

    Attributes:
        number: as AI2-THOR numbers it.
        receptacles: what stands there.
        kinds: kinds of things that are found there.
    """

    number: int
    receptacles: tuple[Receptacle, ...]
    kinds: frozenset[str]


def data_file(name: str) -> Path:
    """A file of the package; which is not imported, because that makes a folder in the user's home."""
    spec = find_spec("alfworld")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / name


@cache
def constants() -> Mapping[str, Any]:
    """The package's tables: rooms by number, what holds what, what can be heated."""
    return runpy.run_path(str(data_file("gen/constants.py")))


@cache
def goals() -> Mapping[str, Mapping[str, Any]]:
    """Goal and sentences by kind of task."""
    return runpy.run_path(str(data_file("gen/goal_library.py")))["gdict"]


@cache
def floor_plan(number: int) -> FloorPlan:
    """One room.

    Args:
        number: as AI2-THOR numbers it, for example 1 for a kitchen or 301 for a bedroom.
    """
    places = json.loads(data_file(f"gen/layouts/FloorPlan{number}-openable.json").read_text(encoding="utf-8"))
    kinds = json.loads(data_file(f"gen/layouts/FloorPlan{number}-objects.json").read_text(encoding="utf-8"))
    receptacles = tuple(
        Receptacle(pddl_name(name), _kind(name), _location(pose)) for name, pose in sorted(places.items())
    )
    return FloorPlan(number, receptacles, frozenset(kinds))


def pddl_name(text: str) -> str:
    """A name as the package writes it in planning problems.

    Example:
        >>> pddl_name("Cabinet|+00.68|+00.50|-02.20")
        'Cabinet_bar__plus_00_dot_68_bar__plus_00_dot_50_bar__minus_02_dot_20'
    """
    for sign, word in (("|", "_bar_"), ("-", "_minus_"), ("+", "_plus_"), (".", "_dot_"), (",", "_comma_")):
        text = text.replace(sign, word)
    return text


def _kind(name: str) -> str:
    """``Sink|...|SinkBasin`` is a SinkBasin."""
    parts = name.split("|")
    return parts[-1] if parts[-1].isalpha() else parts[0]


def _location(pose: list[float]) -> str:
    x, z, turn, horizon = pose
    return pddl_name(f"loc|{round(x / _STEP)}|{round(z / _STEP)}|{round(turn / _TURN)}|{round(horizon)}")
