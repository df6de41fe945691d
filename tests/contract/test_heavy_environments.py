"""The environments that need a JVM, a browser or a library of texts, for real."""

from __future__ import annotations

from functools import partial

import pytest
from installed import require_env

from rllib_agentic.envs.checker import check_env
from rllib_agentic.envs.registry import make_env


@pytest.mark.parametrize(
    ("name", "arguments", "tasks_per_split"),
    [
        ("searchqa", {}, 5),
        ("searchqa", {"reward": "f1", "fanout": False, "results": 2, "train": 30, "validation": 6, "test": 6}, 5),
    ],
)
def test_our_environments_pass(name: str, arguments: dict, tasks_per_split: int) -> None:
    require_env(name)
    findings = check_env(partial(make_env, name, **arguments), tasks_per_split=tasks_per_split, processes=not arguments)
    assert findings == []
