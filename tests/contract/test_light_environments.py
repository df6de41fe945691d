"""Every environment that needs neither a JVM nor a browser passes the checker, as its users will run it."""

from __future__ import annotations

from functools import partial

import pytest

from rllib_agentic.envs.checker import check_env
from rllib_agentic.envs.registry import env_class, make_env
from rllib_agentic.errors import InputError

DEFAULTS = ("babyai", "bfcl", "maze", "sokoban", "sqlgym", "toolbox", "wordle")
VARIANTS: tuple[tuple[str, dict], ...] = (
    ("bfcl", {"categories": ["miss_func", "miss_param"], "progress_reward": 0.5}),
    ("toolbox", {"domains": ["todo", "sheet"], "progress_reward": 0.5}),
    ("babyai", {"levels": ["GoToLocal", "PutNextLocal"], "actions": "primitive", "reward": "minigrid"}),
    ("maze", {"size": 8, "loops": 0.0, "show": "map", "train": 20, "validation": 5, "test": 10}),
    ("maze", {"show": "ways", "trail": False, "step_reward": -0.01, "train": 20, "validation": 5, "test": 10}),
    ("wordle", {"tiers": ["very common"], "hard": True, "answers_only": True, "list_actions": True}),
    ("sokoban", {"size": 7, "boxes": 2, "show": "both", "train": 20, "validation": 5, "test": 10}),
    ("sokoban", {"show": "places", "max_steps": 5, "train": 20, "validation": 5, "test": 10}),
)


def _installed(name: str) -> None:
    try:
        env_class(name)
    except InputError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_pass_the_checker_in_two_processes(name: str) -> None:
    _installed(name)
    assert check_env(partial(make_env, name)) == []


@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
def test_arguments_pass_the_checker(name: str, arguments: dict) -> None:
    _installed(name)
    short = arguments.get("max_steps", 100) < 100
    assert check_env(partial(make_env, name, **arguments), expert_success=0.0 if short else 1.0, processes=False) == []
