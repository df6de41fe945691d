"""An expert that knows where everything is, as ALFWorld's planner does, and takes the fewest steps there are.

The planner itself searches without a heuristic: half a minute for large kitchens. The tests hold one to the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations

from serve_envs.alfworld.facts import Facts

_DONE_BY = {
    "pick_clean_then_place_in_recep": ("isclean", "sinkbasintype", "clean {} with {}"),
    "pick_heat_then_place_in_recep": ("ishot", "microwavetype", "heat {} with {}"),
    "pick_cool_then_place_in_recep": ("iscool", "fridgetype", "cool {} with {}"),
}


@dataclass(frozen=True, slots=True)
class _Way:
    """A beginning of a plan.

    Attributes:
        said: commands.
        at: the location where they lead.
        opened: receptacles that are open then.
    """

    said: tuple[str, ...]
    at: str
    opened: frozenset[str]


class Adviser:
    """Plans from the present state of one household.

    Args:
        kind: of the task.
        target: the kind of thing it is about, as the planner writes it.
        destination: the kind of receptacle it belongs in.
        facts: what holds now.
        names: how things are called, by id.
    """

    def __init__(self, kind: str, target: str, destination: str, facts: Facts, names: Mapping[str, str]) -> None:
        self._kind = kind
        self._names = names
        self._state_and_place = _DONE_BY.get(kind)
        self._kind_of = facts.pairs("objecttype")
        self._stands_at = facts.pairs("receptacleatlocation")
        self._receptacle_kind = facts.pairs("receptacletype")
        self._in = facts.pairs("inreceptacle")
        self._openable = {name for (name,) in facts.of("openable")}
        self._can_hold = set(facts.of("cancontain"))
        self._facts = facts
        self._targets = sorted(name for name, what in self._kind_of.items() if what == f"{target}type")
        self._ends = sorted(name for name, what in self._receptacle_kind.items() if what == f"{destination}type")

    def plan(self) -> tuple[str, ...]:
        """The commands that lead to the goal; empty where it is reached."""
        ((_, at),) = self._facts.of("atlocation")
        opened = frozenset(name for (name,) in self._facts.of("opened"))
        held = next((name for _, name in self._facts.of("holds")), None)
        start = _Way((), at, opened)
        ways = self._finish(start, held) if held is None or held in self._targets else self._lay_down(start, held)
        return min((way.said for way in ways), key=lambda said: (len(said), said))

    def _lay_down(self, way: _Way, held: str) -> Iterator[_Way]:
        """Get rid of what is not wanted."""
        for place, what in self._receptacle_kind.items():
            if (what, self._kind_of[held]) in self._can_hold:
                yield from self._finish(self._put(way, held, place), None)

    def _finish(self, way: _Way, held: str | None) -> Iterator[_Way]:
        if self._kind == "look_at_obj_in_light":
            yield from self._look(way, held)
        elif self._kind == "pick_two_obj_and_place":
            yield from self._place_two(way, held)
        else:
            for target in self._targets if held is None else [held]:
                taken = way if held else self._take(way, target)
                for ready in self._treated(taken, target):
                    yield from (self._put(ready, target, end) for end in self._ends)

    def _look(self, way: _Way, held: str | None) -> Iterator[_Way]:
        lamps = [(lamp, place) for lamp, place in self._in.items() if self._kind_of[lamp] == "desklamptype"]
        for target in self._targets if held is None else [held]:
            taken = way if held else self._take(way, target)
            for lamp, place in lamps:
                there = self._go(taken, place)
                lit = (lamp,) in self._facts.of("istoggled")
                yield there if lit else _say(there, f"use {self._names[lamp]}")

    def _place_two(self, way: _Way, held: str | None) -> Iterator[_Way]:
        for end in self._ends:
            there = [target for target in self._targets if self._in.get(target) == end]
            others = [target for target in self._targets if target not in (*there, held)]
            wanted = 2 - len(there)
            for first in permutations(others, max(0, wanted - (held is not None))):
                then = self._put(way, held, end) if held else way
                for target in first:
                    then = self._put(self._take(then, target), target, end)
                yield then

    def _treated(self, way: _Way, target: str) -> Iterator[_Way]:
        if self._state_and_place is None:
            yield way
            return
        state, appliance, said = self._state_and_place
        if (target,) in self._facts.of(state):
            yield way
            return
        for place, what in self._receptacle_kind.items():
            if what == appliance:
                yield _say(self._go(way, place), said.format(self._names[target], self._names[place]))

    def _take(self, way: _Way, thing: str) -> _Way:
        place = self._in[thing]
        return _say(self._reach_into(way, place), f"take {self._names[thing]} from {self._names[place]}")

    def _put(self, way: _Way, thing: str, place: str) -> _Way:
        return _say(self._reach_into(way, place), f"move {self._names[thing]} to {self._names[place]}")

    def _reach_into(self, way: _Way, place: str) -> _Way:
        there = self._go(way, place)
        if place not in self._openable or place in there.opened:
            return there
        return replace(_say(there, f"open {self._names[place]}"), opened=there.opened | {place})

    def _go(self, way: _Way, place: str) -> _Way:
        location = self._stands_at[place]
        return way if way.at == location else replace(_say(way, f"go to {self._names[place]}"), at=location)


def _say(way: _Way, command: str) -> _Way:
    return replace(way, said=(*way.said, command))
