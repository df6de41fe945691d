"""A run with adapters, end to end: what runners hold, what a checkpoint keeps, what is exported."""

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
from rllib_agentic.rl_module.lora import has_lora, is_adapter

pytest.importorskip("peft")
pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, object_store_memory=100_000_000, include_dashboard=False)
    yield
    ray.shutdown()


def build(name: str, sync: str, **changes: Any) -> Any:
    config = algorithm_class(name).get_default_config()
    return config.update_from_dict(
        {
            "env": "bandit",
            "env_config": {"backend": "local", "args": {"pulls": 2}},
            "model": {
                "preset": "tiny", "hidden_size": 16, "num_layers": 1, "num_heads": 2,
                "lora": {"rank": 4, "sync": sync},
            },
            "rollout": {
                "group_size": 4, "groups_per_iteration": 4, "max_turns": 2, "max_tokens_per_turn": 16,
                "max_context_tokens": 512,
            },
            "learner": {"minibatches": 2, "kl": {"coefficient": 0.01, "place": "loss"}},
            "lr": 1e-2,
            "store": {"enabled": False},
            **changes,
        }
    ).build_algo()  # fmt: skip


def learner_weights(algo: Any) -> dict[str, np.ndarray]:
    state = algo.learner_group.get_state()["learner"]["rl_module"][DEFAULT_MODULE_ID]
    return {name: np.array(values) for name, values in state.items()}


def numbers(result: dict[str, Any]) -> dict[str, float]:
    found = result["learners"][DEFAULT_MODULE_ID]
    return {key: float(found[key]) for key in ("policy_loss", "entropy", "kl_to_reference", "grad_norm")}


@pytest.mark.parametrize(("name", "sync"), [("PPO_LLM", "adapter"), ("GRPO", "merged")])
def test_a_run_with_adapters_trains_saves_and_goes_on(name: str, sync: str, tmp_path: Path, capsys: Any) -> None:
    algo = build(name, sync)
    try:
        before = learner_weights(algo)
        first = numbers(algo.train())
        algo.save_to_path(tmp_path / "checkpoint")
        after = learner_weights(algo)
        assert has_lora(algo.env_runner.module.model) == (sync == "adapter")
        second = numbers(algo.train())
        wanted = learner_weights(algo)
    finally:
        algo.stop()
    assert all(is_adapter(key) or key.startswith("value_head") for key in after)
    assert any(not np.array_equal(before[key], after[key]) for key in after)
    assert first["kl_to_reference"] > 0 and second["kl_to_reference"] > 0  # both left the base, which stayed
    resumed = load_algorithm(tmp_path / "checkpoint")
    try:
        assert numbers(resumed.train()) == second
        found = learner_weights(resumed)
    finally:
        resumed.stop()
    for key, values in wanted.items():
        np.testing.assert_array_equal(found[key], values, err_msg=key)
    assert main(["export", str(tmp_path / "checkpoint"), str(tmp_path / "adapter"), "--adapter"]) == 0
    assert {file.name for file in (tmp_path / "adapter").iterdir()} >= {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    assert main(["export", str(tmp_path / "checkpoint"), str(tmp_path / "whole")]) == 0
    assert (tmp_path / "whole" / "config.json").is_file()
    capsys.readouterr()
