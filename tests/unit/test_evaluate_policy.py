"""``rllib evaluate`` without a checkpoint: experts, chance and untrained models, on the same held-out tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rllib_agentic.algorithms.held_out import held_out_tasks
from rllib_agentic.cli.main import main
from rllib_agentic.envs.baselines import expert_policy, play
from rllib_agentic.envs.registry import make_env

SETTING = '{"env_config": {"args": {"size": 4}}, "rollout": {"max_turns": 6}}'


def evaluated(capsys: Any, *options: str) -> dict[str, Any]:
    assert main(["evaluate", *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_expert_is_scored_on_the_tasks_that_a_checkpoint_would_be(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "result.json"
    options = ["--env", "maze", "--episodes", "30", "--config", SETTING, "--out", str(out), "--save-info"]
    result = evaluated(capsys, "expert", *options)
    env = make_env("maze", size=4)
    tasks = held_out_tasks(env.schema(), "test", 30, 0)
    episodes = json.loads(out.read_text())["episodes"]
    assert [e["task"]["index"] for e in episodes] == [task.index for task in tasks]
    # The oracle: the same tasks, played without tokens, sessions or a command
    steps = [play(env, expert_policy, "test", task.index, task.seed, 6) for task in tasks]
    assert result["success_rate"] == sum(s[-1].success for s in steps) / 30
    assert 0 < result["success_rate"] < 1  # some ways are longer than six steps
    assert result["num_turns_mean"] == pytest.approx(sum(map(len, steps)) / 30)
    assert result["success_rate_low"] < result["success_rate"] < result["success_rate_high"]
    assert (result["policy"], result["split"], result["splits_hash"]) == ("expert", "test", env.schema().splits_hash)


def test_chance_is_of_the_seed_and_falls_behind_the_expert(capsys: Any) -> None:
    options = ["--env", "maze", "--episodes", "40", "--config", SETTING]
    one, again = evaluated(capsys, "random", *options), evaluated(capsys, "random", *options)
    assert one["success_rate"] == again["success_rate"] and one["num_turns_mean"] == again["num_turns_mean"]
    other = evaluated(capsys, "random", *options[:-1], SETTING[:-1] + ', "seed": 1}')
    assert other["num_turns_mean"] != one["num_turns_mean"]
    expert = evaluated(capsys, "expert", *options)
    assert expert["success_rate_low"] > one["success_rate_high"]


def test_samples_of_a_task_are_one_cluster(capsys: Any) -> None:
    result = evaluated(capsys, "random", "--env", "maze", "--episodes", "5", "--samples", "4", "--config", SETTING)
    assert (result["num_episodes"], result["num_tasks"]) == (20, 5)


@pytest.mark.ray
def test_a_model_that_was_not_trained_plays(capsys: Any) -> None:
    options = ["--env", "bandit", "--episodes", "6", "--split", "validation", "--temperature", "0"]
    small = '{"model": {"hidden_size": 32, "num_layers": 1, "num_heads": 2}}'
    result = evaluated(capsys, "tiny", *options, "--config", small)
    assert (result["num_valid_episodes"], result["split"], result["policy"]) == (6, "validation", "tiny")
    assert result["invalid_action_rate"] == 0  # under the legal-token mask
