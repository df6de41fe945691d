"""The environments that need a JVM, a browser or a library of texts, for real."""

from __future__ import annotations

from functools import partial

import pytest
from installed import require_env

from rllib_agentic.envs.checker import check_env
from rllib_agentic.envs.registry import env_class, make_env


@pytest.mark.parametrize(
    ("name", "arguments", "tasks_per_split", "tasks_compared", "processes"),
    [
        ("searchqa", {}, 5, 200, True),
        (
            "searchqa",
            {"reward": "f1", "fanout": False, "results": 2, "train": 30, "validation": 6, "test": 6},
            5,
            9,
            False,
        ),
        ("textworld_express", {}, 8, 40, True),
        (
            "textworld_express",
            {"games": ["coin", "simonsays"], "difficulty": "hard", "show_actions": True},
            3,
            20,
            False,
        ),
        (
            "sciworld",
            {"simplifications": ["easy"], "tasks": ["find-plant", "chemistry-mix"], "max_steps": 30},
            1,
            8,
            True,
        ),
    ],
)
def test_our_environments_pass(
    name: str, arguments: dict, tasks_per_split: int, tasks_compared: int, processes: bool
) -> None:
    require_env(name)
    make = partial(make_env, name, **arguments)
    try:
        findings = check_env(
            make,
            tasks_per_split=tasks_per_split,
            tasks_compared=tasks_compared,
            processes=processes,
            # cut short above: what the expert can do is held in the tests of each
            expert_success=0.0 if name == "sciworld" else 1.0,
        )
    finally:
        getattr(env_class(name), "release", lambda: None)()
    assert findings == []
