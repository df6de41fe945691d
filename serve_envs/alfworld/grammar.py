"""ALFWorld's texts from its own grammar, worked out without TextWorld's copies of every context at every symbol."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

from textworld.envs.pddl import textgen
from textworld.envs.pddl.logic import GameLogic

from serve_envs.alfworld.facts import Facts

Bound = Mapping[str, str]
"""Variable to entity id."""

_LITERAL = re.compile(r"(\w+)\(([^()]*)\)")
_NUMBER = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Entity:
    """What expressions of the grammar see of something.

    Attributes:
        id: as in the planning problem.
        name: ``cabinet 1``.
    """

    id: str
    name: str
    indefinite: str = "a"
    definite: str = "the"

    def __str__(self) -> str:
        return self.name


class Grammar:
    """The rules of a TextWorld grammar with its actions.

    Args:
        logic: domain and grammar, as TextWorld parses them.
    """

    def __init__(self, logic: GameLogic) -> None:
        self._rules: Mapping[str, Sequence[Any]] = logic.grammar._rules
        self._templates = {name: _symbols(action.template) for name, action in logic.actions.items()}
        self._feedback = {name: _symbols(action.feedback_rule) for name, action in logic.actions.items()}

    def introduce(self, facts: Facts, entities: Mapping[str, Entity]) -> str:
        """The text that an episode begins with."""
        return self._say(_symbols("#intro#"), facts, entities, {})

    def command(self, action: str, bound: Bound, facts: Facts, entities: Mapping[str, Entity]) -> str:
        """What the agent says to do something."""
        return self._say(self._templates[action], facts, entities, bound)

    def feedback(self, action: str, bound: Bound, facts: Facts, entities: Mapping[str, Entity]) -> str:
        """What the agent is told when it was done."""
        return self._say(self._feedback[action], facts, entities, bound)

    def _say(self, symbols: Sequence[Any], facts: Facts, entities: Mapping[str, Entity], bound: Bound) -> str:
        return "".join(part for symbol in symbols for part in self._parts(symbol, facts, entities, bound))

    def _parts(self, symbol: Any, facts: Facts, entities: Mapping[str, Entity], bound: Bound) -> list[str]:
        """The texts that a symbol stands for: a conditional one has as many as there are ways to fulfil it."""
        if isinstance(symbol, textgen.TerminalSymbol):
            return [str(symbol)]
        if isinstance(symbol, textgen.NonterminalSymbol):
            return [self._say(self._production(str(symbol), facts, bound), facts, entities, bound)]
        if isinstance(symbol, textgen.ConditionalSymbol):
            ways = ways_to_fulfil(symbol.given, facts, bound) if symbol.given else [bound]
            return ["".join(self._parts(symbol.expression, facts, entities, way)) for way in ways]
        if isinstance(symbol, textgen.EvalSymbol):
            seen = {variable: entities[name] for variable, name in bound.items()}
            return [str(eval(_compiled(symbol.expression), {"__builtins__": {}}, seen))]
        if isinstance(symbol, textgen.ListSymbol):
            # TextWorld lists them in the order of a set, which is another in every process.
            items = sorted(self._parts(symbol.symbol, facts, entities, bound), key=_in_order)
            return [self._listed(items, facts, entities)]
        raise NotImplementedError(f"TextWorld's grammar has a symbol that is not known here: {symbol!r}")

    def _listed(self, items: list[str], facts: Facts, entities: Mapping[str, Entity]) -> str:
        def word(rule: str) -> str:
            return self._say(self._production(rule, facts, {}), facts, entities, {})

        if not items:
            return word("list_empty")
        if len(items) == 1:
            return items[0]
        return word("list_separator").join(items[:-1]) + word("list_last_separator") + items[-1]

    def _production(self, name: str, facts: Facts, bound: Bound) -> Sequence[Any]:
        for rule in self._rules[name]:
            if not rule.condition or next(iter(ways_to_fulfil(rule.condition, facts, bound)), None) is not None:
                return rule.rhs
        raise KeyError(f"ALFWorld's grammar has no rule that fits for {name!r}")


def ways_to_fulfil(query: str, facts: Facts, bound: Bound) -> Iterator[Bound]:
    """All ways to bind the free variables of a query, different ones to different things, as TextWorld does.

    Args:
        query: ``"atlocation(a:agent, l:location) & holds(a:agent, o:object)"``.
        facts: what holds.
        bound: what is bound already.
    """
    return _fulfil(_literals(query), facts, dict(bound))


def _fulfil(literals: tuple[tuple[str, tuple[str, ...]], ...], facts: Facts, bound: dict[str, str]) -> Iterator[Bound]:
    if not literals:
        yield bound
        return
    (predicate, variables), *rest = literals
    for arguments in facts.of(predicate):
        way = dict(bound)
        for variable, argument in zip(variables, arguments, strict=True):
            if variable not in way and argument not in way.values():
                way[variable] = argument
            if way.get(variable) != argument:
                break
        else:
            yield from _fulfil(tuple(rest), facts, way)


@cache
def _literals(query: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(
        (predicate, tuple(part.partition(":")[0].strip() for part in inner.split(",")))
        for predicate, inner in _LITERAL.findall(query)
    )


@cache
def _symbols(text: str) -> Sequence[Any]:
    return textgen.ContextSensitiveGrammar.parse(json.dumps({"it": [{"rhs": text}]}))._rules["it"][0].rhs


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression.strip(), "<ALFWorld's grammar>", "eval")


def _in_order(text: str) -> list[str | int]:
    """So that drawer 2 comes before drawer 10."""
    return [int(part) if part.isdigit() else part for part in _NUMBER.split(text)]
