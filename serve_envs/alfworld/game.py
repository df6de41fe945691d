"""Games: households in the planner's own format. Made once on a machine, which takes a second or more, and kept."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import fast_downward

_FORMAT = "1"  # of what is kept; raise it when that changes


@dataclass(frozen=True, slots=True)
class Game:
    """What the planner needs of a household.

    Attributes:
        sas: the state machine: everything that can be done, nothing left out.
        facts: those of the start, a predicate and its arguments each.
        things: ids of everything there is.
        parameters: names of an action's parameters, by action.
    """

    sas: str
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    things: tuple[str, ...]
    parameters: Mapping[str, tuple[str, ...]]


def open_game(domain: str, problem: str) -> Game:
    """The game of a problem: from the cache, or made and put there. Several processes may do it at once.

    Args:
        domain: in PDDL.
        problem: in PDDL.
    """
    parts = [_FORMAT, version("fast-downward-textworld"), domain, problem]
    file = cache_folder() / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}.game"
    try:
        raw = json.loads(zlib.decompress(file.read_bytes()))
    except (FileNotFoundError, zlib.error, ValueError):  # none yet, or one that the disk has spoilt
        game = _make(domain, problem)
        _keep(file, game)
        return game
    return Game(
        raw["sas"],
        tuple((predicate, tuple(arguments)) for predicate, arguments in raw["facts"]),
        tuple(raw["things"]),
        {action: tuple(names) for action, names in raw["parameters"].items()},
    )


def cache_folder() -> Path:
    """Where games are kept."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rllib_agentic" / "alfworld"
    root.mkdir(parents=True, exist_ok=True)
    return root


def _make(domain: str, problem: str) -> Game:
    task, sas = fast_downward.pddl2sas(domain, problem)
    facts = tuple(
        (fact.predicate, tuple(fact.args)) for fact in task.init if hasattr(fact, "predicate") and fact.predicate != "="
    )
    parameters = {action.name: tuple(one.name.strip("?") for one in action.parameters) for action in task.actions}
    return Game(sas, facts, tuple(sorted(one.name for one in task.objects)), parameters)


def _keep(file: Path, game: Game) -> None:
    content = {"sas": game.sas, "facts": game.facts, "things": game.things, "parameters": game.parameters}
    descriptor, unfinished = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".unfinished")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(zlib.compress(json.dumps(content).encode()))
        os.replace(unfinished, file)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
