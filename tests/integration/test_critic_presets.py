"""A preset with a critic, end to end: the critic stays with the learner, learns, and is in the checkpoint."""

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

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, object_store_memory=100_000_000, include_dashboard=False)
    yield
    ray.shutdown()


def build(name: str, **changes: Any) -> Any:
    config = algorithm_class(name).get_default_config()
    return config.update_from_dict(
        {
            "env": "bandit",
            "env_config": {"backend": "local", "args": {"pulls": 2}},
            "model": {"preset": "tiny", "hidden_size": 16, "num_layers": 1, "num_heads": 2},
            "rollout": {
                "group_size": 4, "groups_per_iteration": 4, "max_turns": 2, "max_tokens_per_turn": 16,
                "max_context_tokens": 512,
            },
            "store": {"enabled": False},
            "evaluation_duration": 5,
            **changes,
        }
    ).build_algo()  # fmt: skip


def learner_weights(algo: Any) -> dict[str, np.ndarray]:
    state = algo.learner_group.get_state()["learner"]["rl_module"][DEFAULT_MODULE_ID]
    return {name: np.array(values) for name, values in state.items()}


def numbers(result: dict[str, Any]) -> dict[str, float]:
    found = result["learners"][DEFAULT_MODULE_ID]
    return {key: float(found[key]) for key in ("policy_loss", "value_loss", "value_mean", "return_mean", "entropy")}


def test_the_critic_lives_with_the_learner_only() -> None:
    algo = build("PPO_LLM", learner={"kl": {"coefficient": 0.01}})
    try:
        before = learner_weights(algo)
        algo.train()
        result = algo.train()
        after = learner_weights(algo)
        assert not hasattr(algo.env_runner.module, "value_head")
        assert not before["value_head.linear.weight"].any() and after["value_head.linear.weight"].any()
        algo.evaluate()  # a job takes the newest weights along
        held = algo.env_runner.module.get_state()
    finally:
        algo.stop()
    assert {name for name in after if name not in held} == {"value_head.linear.weight", "value_head.linear.bias"}
    for name, values in held.items():
        np.testing.assert_array_equal(values, after[name], err_msg=name)
    assert all(np.isfinite(value) for value in numbers(result).values())
    assert result["env_runners"]["kl_to_reference"] != 0.0  # the policy has left its start


def test_warm_up_trains_the_critic_alone() -> None:
    algo = build("StepGAE", learner={"minibatches": 1, "value": {"warmup_steps": 1}})
    try:
        first, second = (algo.train()["learners"][DEFAULT_MODULE_ID] for _ in range(2))
    finally:
        algo.stop()
    assert "policy_loss" not in first and "policy_loss" in second
    assert first["value_loss"] > 0


@pytest.mark.parametrize(
    ("name", "critic"),
    [("PPO_LLM", {}), ("BiLevelGAE", {"preset": "tiny", "hidden_size": 32, "num_layers": 1, "num_heads": 2})],
    ids=["head", "own model"],
)
def test_a_resumed_run_equals_one_that_was_never_stopped(name: str, critic: dict[str, Any], tmp_path: Path) -> None:
    changes: dict[str, Any] = {"learner": {"kl": {"coefficient": 0.01}}, "critic": critic}
    straight = build(name, **changes)
    try:
        straight.train()
        straight.save_to_path(tmp_path / "checkpoint")
        expected = numbers(straight.train())
        wanted = learner_weights(straight)
    finally:
        straight.stop()
    resumed = load_algorithm(tmp_path / "checkpoint")
    try:
        assert numbers(resumed.train()) == expected
        found = learner_weights(resumed)
    finally:
        resumed.stop()
    assert found.keys() == wanted.keys()
    for weight, values in wanted.items():
        np.testing.assert_array_equal(found[weight], values, err_msg=weight)
