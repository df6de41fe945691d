"""The engine's side, in a process of its own: the planner's library, a copy of it for each session."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

os.environ.setdefault("ALFWORLD_DATA", tempfile.gettempdir())  # else the package makes a folder in the user's home

import fast_downward
from alfworld.agents.utils.misc import Demangler
from textworld.envs.pddl.logic import GameLogic

from serve_envs.alfworld.expert import Adviser
from serve_envs.alfworld.facts import Facts
from serve_envs.alfworld.game import open_game
from serve_envs.alfworld.grammar import Entity, Grammar
from serve_envs.alfworld.household import Household
from serve_envs.alfworld.package import data_file
from serve_envs.alfworld.problem import domain, problem

_GOAL = "UNKNOWN GOAL"  # stands in the grammar for the task's sentence


class Shown(NamedTuple):
    """What a household shows.

    Attributes:
        text: the engine's answer.
        commands: what can be said now.
        done: what was said could be done.
        won: the task is done.
        key: equal for equal states.
    """

    text: str
    commands: tuple[str, ...]
    done: bool
    won: bool
    key: str


@dataclass
class _House:
    household: Household
    library: Any
    entities: Mapping[str, Entity]
    parameters: Mapping[str, tuple[str, ...]]
    facts: Facts
    said: dict[int, str] = field(default_factory=dict)  # an operator's command never changes
    can: dict[str, Any] = field(default_factory=dict)


class Houses:
    """The households of many sessions."""

    def __init__(self) -> None:
        grammar = data_file("data/alfred.twl2").read_text(encoding="utf-8")
        self._domain = domain()
        self._grammar = Grammar(GameLogic(self._domain, grammar))
        self._houses: dict[str, _House] = {}
        self._spare: list[Any] = []

    def begin(self, session: str, household: Household) -> Shown:
        """Set a household up."""
        self.end(session)
        game = open_game(self._domain, problem(household))
        library = self._spare.pop() if self._spare else fast_downward.load_lib()
        library.load_sas(game.sas.encode())
        house = _House(household, library, _named(game.things), game.parameters, Facts(game.facts))
        self._houses[session] = house
        text = self._grammar.introduce(house.facts, house.entities).replace(_GOAL, household.sentence)
        return self._shown(house, text)

    def act(self, session: str, command: str) -> Shown:
        """Do what the agent says; a command that is not possible changes nothing."""
        house = self._houses[session]
        operator = house.can.get(command)
        if operator is None:
            return self._shown(house, "Nothing happens.", done=False)
        effects = (fast_downward.Atom * operator.nb_effect_atoms)()
        house.library.apply_operator(operator.id, effects)
        for effect in effects:
            house.facts.change(effect.name)
        action, bound = self._read(house, operator)
        return self._shown(house, self._grammar.feedback(action, bound, house.facts, house.entities))

    def advise(self, session: str) -> str:
        """What an expert that knows where everything is would say now."""
        house = self._houses[session]
        task = house.household
        names = {one: entity.name for one, entity in house.entities.items()}
        plan = Adviser(task.kind, task.target.lower(), task.destination.lower(), house.facts, names).plan()
        return plan[0] if plan else "look"

    def end(self, session: str) -> None:
        """Forget a session."""
        house = self._houses.pop(session, None)
        if house is not None:
            house.library.cleanup()
            self._spare.append(house.library)

    def _shown(self, house: _House, text: str, *, done: bool = True) -> Shown:
        operators = (fast_downward.Operator * house.library.get_applicable_operators_count())()
        house.library.get_applicable_operators(operators)
        house.can = {}
        for operator in operators:
            command = house.said.get(operator.id)
            if command is None:
                action, bound = self._read(house, operator)
                command = house.said[operator.id] = self._grammar.command(action, bound, house.facts, house.entities)
            house.can.setdefault(command, operator)
        return Shown(text, tuple(sorted(house.can)), done, bool(house.library.check_goal()), house.facts.key())

    @staticmethod
    def _read(house: _House, operator: Any) -> tuple[str, dict[str, str]]:
        action, *arguments = operator.name.split()
        return action, dict(zip(house.parameters[action], arguments, strict=False))


def _named(things: tuple[str, ...]) -> dict[str, Entity]:
    """ALFWorld's names: ``cabinet 1``."""
    entities = {one: Entity(one, one) for one in things}
    names = Demangler(game_infos=entities, shuffle=False)
    return {one: Entity(one, names.demangle_alfred_name(one).strip()) for one in things}
