"""SFT, DPO and AgentEvol end to end: what they read, what they train on, and what a resumed run does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.rllib.core import DEFAULT_MODULE_ID

from rllib_agentic.algorithms.checkpoints import load_algorithm
from rllib_agentic.algorithms.presets import algorithm_class
from rllib_agentic.cli.main import main
from rllib_agentic.errors import InputError
from rllib_agentic.store import TrajectoryReader

pytestmark = pytest.mark.ray

ARMS = {"safe_arms": 2, "risky_arms": 2, "low_reward": 0.0, "high_probability": 1.0, "pulls": 2}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, object_store_memory=100_000_000, include_dashboard=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Eight groups of four random episodes, as the command stores them."""
    folder = tmp_path_factory.mktemp("walks")
    command = ["envs", "collect", "bandit", "--policy", "random", "--episodes", "32", "--group-size", "4"]
    assert main([*command, "--args", str(ARMS).replace("'", '"'), "--max-turns", "2", "--output", str(folder)]) == 0
    return str(folder)


def build(name: str, **changes: Any) -> Any:
    config = algorithm_class(name).get_default_config()
    return config.update_from_dict(
        {
            "env": "bandit",
            "env_config": {"backend": "local", "args": ARMS},
            "model": {"preset": "tiny", "hidden_size": 16, "num_layers": 1, "num_heads": 2},
            "rollout": {
                "group_size": 4, "groups_per_iteration": 4, "max_turns": 2, "max_tokens_per_turn": 16,
                "max_context_tokens": 512,
            },
            "store": {"enabled": False},
            "learner": {"minibatches": 2},
            "evaluation_duration": 5,
            **changes,
        }
    ).build_algo()  # fmt: skip


def learner_weights(algo: Any) -> dict[str, np.ndarray]:
    state = algo.learner_group.get_state()["learner"]["rl_module"][DEFAULT_MODULE_ID]
    return {name: np.array(values) for name, values in state.items()}


def settings_of(name: str, walks: str) -> dict[str, Any]:
    offline: dict[str, Any] = {"trajectories_per_iteration": 8}
    if name == "SFT":
        offline |= {"collect": {"episodes": 12}}
    elif name == "DPO":
        offline |= {"paths": walks}
    elif name == "AgentEvol":
        offline |= {"collect": {"episodes": 12}, "clone_iterations": 1}
    return {"offline": offline}


@pytest.mark.parametrize("name", ["SFT", "DPO", "AgentEvol"])
def test_a_resumed_run_equals_one_that_was_never_stopped(name: str, walks: str, tmp_path: Path) -> None:
    straight = build(name, **settings_of(name, walks))
    try:
        straight.train()
        straight.save_to_path(tmp_path / "checkpoint")
        expected = straight.train()["learners"][DEFAULT_MODULE_ID]
        wanted = learner_weights(straight)
    finally:
        straight.stop()
    resumed = load_algorithm(tmp_path / "checkpoint")
    try:
        found = resumed.train()["learners"][DEFAULT_MODULE_ID]
        weights = learner_weights(resumed)
    finally:
        resumed.stop()
    for key in ("policy_loss", "entropy", "trained_tokens", "grad_norm"):
        assert float(found[key]) == float(expected[key]), key
    for weight, values in wanted.items():
        np.testing.assert_array_equal(weights[weight], values, err_msg=weight)


def test_sft_samples_nothing_until_it_evaluates() -> None:
    algo = build("SFT", offline={"collect": {"episodes": 12}, "trajectories_per_iteration": 9})
    try:
        before = algo.env_runner.module.get_state()
        result = algo.train()
        held = algo.env_runner.module.get_state()
        assert all(np.array_equal(before[name], held[name]) for name in held)
        assert result["offline"]["trajectories"] == 12 and result["offline"]["epochs"] == 0.75
        assert "success_rate" not in result.get("env_runners", {})
        algo.evaluate()
        now, trained = algo.env_runner.module.get_state(), learner_weights(algo)
        assert all(np.array_equal(now[name], trained[name]) for name in now)
        assert any(not np.array_equal(before[name], now[name]) for name in now)
    finally:
        algo.stop()


def test_agent_evol_merges_what_it_explored_with_what_was_stored(tmp_path: Path) -> None:
    store = {"enabled": True, "path": str(tmp_path / "store")}
    algo = build("AgentEvol", store=store, offline={"collect": {"episodes": 12}, "trajectories_per_iteration": 8})
    try:
        result = algo.train()
    finally:
        algo.stop()
    explored = list(TrajectoryReader(tmp_path / "store"))
    assert len(explored) == 16
    for stored in explored:
        weight = None if stored.advantages is None else set(np.concatenate(stored.advantages).tolist())
        reward = stored.trajectory.total_reward
        assert weight == ({reward} if reward > 0 else None)
    mine = sum(s.trajectory.num_action_tokens for s in explored if s.trajectory.total_reward > 0)
    assert result["learners"][DEFAULT_MODULE_ID]["trained_tokens"] > mine


def test_agent_evol_can_train_the_first_weights_anew() -> None:
    offline = {"collect": {"episodes": 12}, "trajectories_per_iteration": 12, "restart": True}
    algo = build("AgentEvol", offline=offline)
    try:
        first = learner_weights(algo)
        algo.train()
        trained = learner_weights(algo)
        algo.learner_group.foreach_learner(lambda learner: learner.restart())
        again = learner_weights(algo)
        result = algo.train()["learners"][DEFAULT_MODULE_ID]
    finally:
        algo.stop()
    assert any(not np.array_equal(first[name], trained[name]) for name in first)
    for name in first:
        np.testing.assert_array_equal(first[name], again[name], err_msg=name)
    assert result["lifetime_optimizer_steps"] == result["optimizer_steps"] == 2
    with pytest.raises(InputError, match=r"offline\.restart: has no effect with SFT"):
        build("SFT", offline={"collect": {"episodes": 12}, "restart": True})


def test_dpo_pairs_what_it_samples(tmp_path: Path) -> None:
    store = {"enabled": True, "path": str(tmp_path / "store")}
    algo = build("DPO", store=store)
    try:
        result = algo.train()
    finally:
        algo.stop()
    signs = [
        float(np.sign(stored.advantages[0][0])) if stored.advantages is not None else 0.0
        for stored in TrajectoryReader(tmp_path / "store")
    ]
    assert signs.count(1.0) == signs.count(-1.0) == result["env_runners"]["pairs"] > 0
    assert 0 <= result["learners"][DEFAULT_MODULE_ID]["preference_accuracy"] <= 1


def test_what_cannot_work_is_said_at_the_start(walks: str) -> None:
    with pytest.raises(InputError, match=r"offline\.paths"):
        build("SFT")
    with pytest.raises(InputError, match="GRPO samples all"):
        build("GRPO", offline={"paths": walks})
    with pytest.raises(InputError, match="'dpo' does not go with SFT"):
        build("SFT", loss={"type": "dpo"}, offline={"paths": walks})
    with pytest.raises(InputError, match=r"learner\.kl\.place"):
        build("SFT", learner={"kl": {"coefficient": 0.1, "place": "reward"}}, offline={"paths": walks})
    with pytest.raises(InputError, match="at least 2"):
        build("DPO", rollout={"group_size": 1})
    with pytest.raises(InputError, match="does not divide the 8 trajectories"):
        build(
            "SFT",
            minibatch_size=3,
            learner={"minibatches": 1},
            offline={"paths": walks, "trajectories_per_iteration": 8},
        )
