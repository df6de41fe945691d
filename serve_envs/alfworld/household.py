"""Households: a room of AI2-THOR's, furnished at random, and what is to be done there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from serve_envs.alfworld.package import FloorPlan, Receptacle, constants, floor_plan, goals, pddl_name

Size = Literal["small", "medium", "full"]

KINDS = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""ALFWorld's kinds of tasks."""

SIZES: dict[Size, tuple[int, int]] = {"small": (6, 4), "medium": (12, 10), "full": (1000, 20)}
"""The most receptacles, and how many other things lie about."""

LAMP = "DeskLamp"  # the rooms' floor lamps stand in no receptacle, and the domain cannot use them there
_LAMP_STANDS = ("Desk", "SideTable", "Dresser", "Shelf", "CoffeeTable", "DiningTable")
_APPLIANCE = {
    "pick_clean_then_place_in_recep": ("Cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("Heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("Coolable", "Fridge"),
}
_SPLIT_OF_ROOM = {"test": range(1, 7), "validation": range(7, 10), "train": range(10, 31)}


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that can be carried, or the lamp.

    Attributes:
        id: as in planning problems.
        kind: ``Apple``, ``Mug``, ...
        place: the receptacle that it is in at first.
    """

    id: str
    kind: str
    place: str


@dataclass(frozen=True, slots=True)
class Household:
    """One task.

    Attributes:
        kind: of :data:`KINDS`.
        room: the number of AI2-THOR's floor plan.
        receptacles: what stands there.
        things: what lies there.
        target: the kind of thing that the task is about.
        destination: the kind of receptacle that it belongs in; ``""`` where it is looked at.
        sentence: what is asked for.
    """

    kind: str
    room: int
    receptacles: tuple[Receptacle, ...]
    things: tuple[Thing, ...]
    target: str
    destination: str
    sentence: str


def rooms_of(split: str, kind: str) -> tuple[int, ...]:
    """The rooms of a split where a kind of task is possible. The test's are those that the package sets apart."""
    return tuple(
        room
        for scene, rooms in constants()["SCENE_TYPE"].items()
        if scene in constants()["GOALS_VALID"][kind]
        for number, room in enumerate(rooms, start=1)
        if number in _SPLIT_OF_ROOM[split] and _choices(kind, room)
    )


def furnish(kind: str, room: int, size: Size, draw: random.Random) -> Household:
    """A household for a kind of task, which can be solved and is not solved at the start.

    Args:
        kind: of :data:`KINDS`.
        room: of :func:`rooms_of` that kind.
        size: how much stands and lies there.
        draw: decides all the rest.
    """
    most, others = SIZES[size]
    plan = floor_plan(room)
    target, destination = draw.choice(_choices(kind, room))
    receptacles = _choose_receptacles(plan, kind, target, destination, most, draw)
    things: list[Thing] = []

    def put(what: str, places: list[Receptacle]) -> None:
        things.append(Thing(_new_id(what, draw), what, draw.choice(places).id))

    outside = [one for one in receptacles if one.kind != destination and target in _held_by(one.kind)]
    for _ in range(draw.randint(2, 3) if kind == "pick_two_obj_and_place" else draw.randint(1, 2)):
        put(target, outside)
    if kind == "look_at_obj_in_light":
        put(LAMP, [one for one in receptacles if one.kind in _LAMP_STANDS])
    pool = sorted({what for one in receptacles for what in _held_by(one.kind)} & plan.kinds - {target})
    for _ in range(others if pool else 0):
        what = draw.choice(pool)
        put(what, [one for one in receptacles if what in _held_by(one.kind)])
    sentence = draw.choice(goals()[kind]["templates"]).format(
        obj=target.lower(), recep=destination.lower(), toggle=LAMP.lower(), mrecep=""
    )
    return Household(kind, room, receptacles, tuple(things), target, destination, sentence)


def _choose_receptacles(
    plan: FloorPlan, kind: str, target: str, destination: str, most: int, draw: random.Random
) -> tuple[Receptacle, ...]:
    """As many as may be, those that the task needs among them."""

    def one_of(fits: Iterator[Receptacle]) -> Receptacle:
        return draw.choice(list(fits))

    needed = {one_of(one for one in plan.receptacles if one.kind != destination and target in _held_by(one.kind))}
    if destination:
        needed.add(one_of(one for one in plan.receptacles if one.kind == destination))
    if kind in _APPLIANCE:
        needed.add(one_of(one for one in plan.receptacles if one.kind == _APPLIANCE[kind][1]))
    if kind == "look_at_obj_in_light":
        needed.add(one_of(one for one in plan.receptacles if one.kind in _LAMP_STANDS))
    rest = [one for one in plan.receptacles if one not in needed]
    kept = needed | set(draw.sample(rest, min(len(rest), most - len(needed))))
    return tuple(one for one in plan.receptacles if one in kept)


@cache
def _choices(kind: str, room: int) -> tuple[tuple[str, str], ...]:
    """Target and destination, all that go together in a room."""
    plan = floor_plan(room)
    stand = {one.kind for one in plan.receptacles}
    action, appliance = _APPLIANCE.get(kind, ("", ""))
    if appliance and appliance not in stand:
        return ()
    if kind == "look_at_obj_in_light" and (LAMP not in plan.kinds or not stand & set(_LAMP_STANDS)):
        return ()
    found = []
    for target in sorted(plan.kinds):
        if action and target not in constants()["VAL_ACTION_OBJECTS"][action]:
            continue
        holding = sorted(kind for kind in stand if target in _held_by(kind))
        if kind == "look_at_obj_in_light":
            found += [(target, "")] * bool(holding)
        else:
            found += [(target, one) for one in holding if one != appliance and len(holding) > 1]
    return tuple(found)


@cache
def _held_by(kind: str) -> frozenset[str]:
    """Kinds of whole things that a kind of receptacle can hold."""
    return frozenset(what for what in constants()["VAL_RECEPTACLE_OBJECTS"].get(kind, ()) if "Sliced" not in what)


def _new_id(what: str, draw: random.Random) -> str:
    """A name as AI2-THOR gives it: with a place in the room, which nothing depends on."""
    place = "|".join(f"{draw.choice('+-')}{draw.randrange(5):02d}.{draw.randrange(100):02d}" for _ in range(3))
    return pddl_name(f"{what}|{place}")
