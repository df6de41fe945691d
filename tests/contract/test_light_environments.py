"""Every environment that needs neither a JVM nor a browser passes the checker, as its users will run it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

import serve_envs
from rllib_agentic.envs.checker import check_env
from rllib_agentic.envs.registry import env_class, make_env
from rllib_agentic.envs.trace import record_reset, record_step
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
    make = partial(make_env, name, **arguments)
    wanted = 0.0 if arguments.get("max_steps", 100) < 100 else 1.0
    assert check_env(make, expert_success=wanted, tasks_per_split=3, processes=False) == []


@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize(
    "text", ["a\x00b", "\x1b[31mred\x1b[0m", "x" * 2**20, "\u202eabc", "\ud800", "<tool_call>{}</tool_call>"]
)
def test_odd_texts_are_answered_in_json(name: str, text: str) -> None:
    """Whatever an agent writes, the answer is a message that can travel, and the next reset is as new."""
    _installed(name)
    env = make_env(name)
    first = record_reset(env.reset("train", 0, 0))
    for _ in range(2):
        result = env.step(text)
        sent = json.dumps(record_step(result))
        assert len(sent) < 200_000  # nobody's megabyte comes back
        sent.encode()
        assert not result.success
        if result.terminated or result.truncated:
            with pytest.raises(RuntimeError, match="reset"):
                env.step(text)
            break
    assert record_reset(env.reset("train", 0, 0)) == first
    env.close()


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_seed_decides_nothing_that_the_task_shows(name: str) -> None:
    """A group of episodes shares its prompt, whatever seeds its members have."""
    _installed(name)
    env = make_env(name)
    assert record_reset(env.reset("test", 3, 0)) == record_reset(env.reset("test", 3, 12345))
    env.close()


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_card_names_hash_and_counts(name: str) -> None:
    _installed(name)
    schema = make_env(name).schema()
    card = (Path(serve_envs.__file__).parent / name / "README.md").read_text(encoding="utf-8")
    assert schema.splits_hash in card
    for split, count in schema.splits.items():
        assert f"`{split}` {count}" in card
    for heading in ("Reward", "Success", "Ends", "licence", "Needs", "Scores", "Speed", "expert", "andom"):
        assert heading in card
