"""Several environments in one run: shares, budgets, held-out success, and a resume that goes on exactly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from rllib_agentic.algorithms.checkpoints import load_algorithm
from rllib_agentic.algorithms.grpo import GRPO, GRPOConfig
from rllib_agentic.errors import InputError
from rllib_agentic.store import TrajectoryReader
from rllib_agentic.tracking.metrics import scalars

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def config(**changes: Any) -> GRPOConfig:
    bandit = {"backend": "local", "args": {"safe_arms": 2, "risky_arms": 2, "low_reward": 0.0, "high_probability": 1.0}}
    watch = {"watch": "evaluation", "threshold": 0.01, "patience": 1, "min_iterations": 1}
    two = {
        "env_config": {"backend": "local", "args": {"size": 4}},
        "environments": {
            "frozenlake": {"weight": 1, "curriculum": {"type": "adaptive", "max_turns": [2, 4], **watch}},
            "bandit": {"weight": 3, "env_config": bandit, "curriculum": {"type": "fixed", "max_turns": 1}},
        },
        "tasks": {"type": "by_success"},
        "model": {"preset": "tiny", "hidden_size": 32, "num_layers": 1},
        "rollout": {"group_size": 2, "groups_per_iteration": 8, "max_turns": 4},
        "filters": [{"type": "reward_variance", "rule": "threshold"}],
        "evaluation_interval": 1,
        "evaluation_duration": 6,
        "evaluation_config": {"rollout": {"temperature": 1.0}},
        "lr": 1e-2,
        "seed": 5,
    }
    return GRPOConfig().environment("frozenlake").update_from_dict(two).update_from_dict(changes)


def steady(result: dict[str, Any]) -> dict[str, float]:
    timed = ("timer", "time", "seconds", "_per_s", "throughput", "perf/", "since_restore")
    return {key: value for key, value in scalars(result).values.items() if not any(word in key for word in timed)}


def weights(algo: GRPO) -> dict[str, np.ndarray]:
    return {name: value.copy() for name, value in algo.learner_group.get_weights()["default_policy"].items()}


def test_two_environments_share_a_run_and_a_resumed_one_goes_on_exactly(tmp_path: Path) -> None:
    algo = config().build_algo()
    try:
        first = algo.train()
        saved = algo.save_to_path(str(tmp_path / "checkpoint"))
        second = algo.train()
        final = weights(algo)
        stored = list(TrajectoryReader(Path(algo.logdir) / "trajectories"))
    finally:
        algo.stop()
    envs = first["env_runners"]["env"]
    assert envs["bandit"]["num_episodes"] == 12 and envs["frozenlake"]["num_episodes"] == 4
    whole = (12 * envs["bandit"]["success_rate"] + 4 * envs["frozenlake"]["success_rate"]) / 16
    assert first["env_runners"]["success_rate"] == pytest.approx(whole)
    held_out = first["evaluation"]["env"]
    assert held_out["bandit"]["num_tasks"] == 6 and held_out["frozenlake"]["success_rate_high"] <= 1
    assert first["evaluation"]["num_episodes"] == 12
    played = {s.trajectory.task.env: max(len(s.trajectory.turns), 0) for s in stored}
    assert played["bandit"] == 1 and {t.trajectory.task.split for t in stored} == {"train"}
    assert first["curriculum"]["bandit"]["max_turns"] == 1 and first["curriculum"]["frozenlake"]["max_turns"] == 2
    rises = held_out["frozenlake"]["success_rate"] > 0.01  # held-out success decides, and is heard at once
    assert second["curriculum"]["frozenlake"]["max_turns"] == (4 if rises else 2)
    assert ("frozenlake" in str(first.get("events"))) == rises
    assert first["env_runners"]["filter"]["tasks_seen"] > 0 and "seen_share" in first["tasks"]["bandit"]

    resumed = load_algorithm(saved)
    try:
        assert steady(resumed.train()) == steady(second)
        for name, value in weights(resumed).items():
            np.testing.assert_array_equal(value, final[name], err_msg=name)
    finally:
        resumed.stop()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environments": {"frozenlake": None}}, None),
        ({"environments": {"bandit": {"weight": 0}}}, r"config\.environments\.bandit\.weight: .*greater than 0"),
        ({"environments": {"bandit": {"wieght": 1}}}, "Did you mean 'weight'"),
        ({"environments": {"frozenlake": {"env_config": {}}}}, r"stands in config\.env_config"),
        ({"environments": {"bandit": {"curriculum": {"type": "fixd"}}}}, "Did you mean 'fixed'"),
        ({"environments": {"nowhere": {}}}, "nowhere"),
        ({"evaluation_interval": None}, "'evaluation' needs evaluations"),
        ({"environments": []}, "expected a mapping"),
    ],
)
def test_mistakes_in_the_section_are_explained(changes: dict[str, Any], message: str | None) -> None:
    if message is None:
        config(**changes).validate()
        return
    with pytest.raises(InputError, match=message):
        config(**changes).validate()


def test_the_runs_own_environment_must_have_a_share() -> None:
    alone = GRPOConfig().environment("frozenlake").update_from_dict({"environments": {"bandit": {}}})
    with pytest.raises(InputError, match=r"config\.env 'frozenlake' is not among them"):
        alone.validate()
