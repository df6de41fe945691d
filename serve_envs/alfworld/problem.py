"""A household as a planning problem in ALFWorld's domain, with the facts that ALFWorld's own problems state."""

from __future__ import annotations

from collections.abc import Iterator

from serve_envs.alfworld.household import LAMP, Household
from serve_envs.alfworld.package import constants, data_file, goals

_START = "loc_bar_0_bar_0_bar_0_bar_15"  # looking down by half a step: nothing else is seen from there
_CAN = {"Heatable": "heatable", "Coolable": "coolable", "Cleanable": "cleanable", "Sliceable": "sliceable"}


def domain() -> str:
    """The package's domain."""
    return data_file("data/alfred.pddl").read_text(encoding="utf-8")


def problem(household: Household) -> str:
    """The problem, in PDDL.

    Args:
        household: the task.
    """
    goal = goals()[household.kind]["pddl"].format(
        obj=household.target, recep=household.destination, toggle=LAMP, mrecep=""
    )
    lines = [
        "(define (problem household)",
        "(:domain alfred)",
        "(:objects",
        *_objects(household),
        ")",
        "(:init",
        "(= (total-cost) 0)",
        *_facts(household),
        ")",
        goal.replace("#", "-"),
    ]
    return "\n".join(lines)


def _objects(household: Household) -> Iterator[str]:
    yield "agent1 - agent"
    for location in sorted({_START, *(one.location for one in household.receptacles)}):
        yield f"{location} - location"
    for one in household.receptacles:
        yield f"{one.id} - receptacle"
    for thing in household.things:
        yield f"{thing.id} - object"
    for kind in _receptacle_kinds(household):
        yield f"{kind}Type - rtype"
    for kind in _thing_kinds(household):
        yield f"{kind}Type - otype"


def _facts(household: Household) -> Iterator[str]:
    tables = constants()
    yield f"(atLocation agent1 {_START})"
    for one in household.receptacles:
        yield f"(receptacleAtLocation {one.id} {one.location})"
        yield f"(receptacleType {one.id} {one.kind}Type)"
        if one.kind in tables["OPENABLE_CLASS_SET"]:
            yield f"(openable {one.id})"
    for holder in _receptacle_kinds(household):
        for kind in _thing_kinds(household):
            if kind in tables["VAL_RECEPTACLE_OBJECTS"].get(holder, ()):
                yield f"(canContain {holder}Type {kind}Type)"
    location_of = {one.id: one.location for one in household.receptacles}
    for thing in household.things:
        yield f"(objectType {thing.id} {thing.kind}Type)"
        yield f"(inReceptacle {thing.id} {thing.place})"
        yield f"(objectAtLocation {thing.id} {location_of[thing.place]})"
        yield f"({'toggleable' if thing.kind == LAMP else 'pickupable'} {thing.id})"
        if thing.kind in tables["MOVABLE_RECEPTACLES_SET"]:
            yield f"(isReceptacleObject {thing.id})"
        for table, predicate in _CAN.items():
            if thing.kind in tables["VAL_ACTION_OBJECTS"][table]:
                yield f"({predicate} {thing.id})"


def _receptacle_kinds(household: Household) -> list[str]:
    return sorted({one.kind for one in household.receptacles})


def _thing_kinds(household: Household) -> list[str]:
    return sorted({thing.kind for thing in household.things})
