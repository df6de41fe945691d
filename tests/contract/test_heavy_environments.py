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
        ("alfworld", {"size": "small", "processes": 1}, 3, 24, True),
        ("alfworld", {"kinds": ["pick_two_obj_and_place"], "show_actions": True, "max_steps": 20}, 2, 3, False),
        ("textworld_express", {}, 9, 40, True),
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
        (
            "webnav",
            {"pages": ["login-user", "click-checkboxes", "email-inbox"], "max_steps": 6, "browsers": 1},
            2,
            12,
            True,
        ),
        ("webnav", {"max_steps": 3, "browsers": 2, "sessions_per_browser": 1}, 1, 50, False),
        ("webarena_local", {"max_steps": 3, "browsers": 1}, 1, 4, True),
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
            actions_tried=8 if name.startswith("web") else None,
            # cut short above: what the expert can do is held in the tests of each
            expert_success=0.0 if name == "sciworld" or arguments.get("max_steps") == 3 else 1.0,
        )
    finally:
        getattr(env_class(name), "release", lambda: None)()
    assert findings == []
