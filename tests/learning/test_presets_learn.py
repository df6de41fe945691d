"""Every preset that samples makes a random policy play well: success at the end against the start, by intervals.

The bandit with four arms and three pulls: a risky arm pays 1, a safe one 0, and an episode succeeds when all pulls are
risky, which a random policy manages in one of eight. The tasks of the evaluation are held out and sampled at
temperature 1, as in training.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray

from rllib_agentic.algorithms.presets import PRESETS, algorithm_class

pytestmark = pytest.mark.ray

ITERATIONS = 20
SETTINGS: dict[str, Any] = {
    "env": "bandit",
    "env_config": {
        "backend": "local",
        "args": {"safe_arms": 2, "risky_arms": 2, "low_reward": 0.0, "high_probability": 1.0, "pulls": 3},
    },
    "model": {"preset": "tiny", "hidden_size": 32, "num_layers": 1, "num_heads": 2},
    "rollout": {
        "group_size": 4, "groups_per_iteration": 16, "max_turns": 3, "max_tokens_per_turn": 16,
        "max_context_tokens": 512,
    },
    "lr": 3e-3,
    "seed": 0,
    "store": {"enabled": False},
    "evaluation_duration": 50,
    "evaluation_config": {"rollout": {"temperature": 1.0}},
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, object_store_memory=100_000_000, include_dashboard=False)
    yield
    ray.shutdown()


@pytest.mark.parametrize("name", sorted(n for n in PRESETS if algorithm_class(n).offline_use != "always"))
def test_the_preset_learns(name: str) -> None:
    algo = algorithm_class(name).get_default_config().update_from_dict(SETTINGS).build_algo()
    try:
        start = algo.evaluate()
        for _ in range(ITERATIONS):
            algo.train()
        end = algo.evaluate()
    finally:
        algo.stop()
    assert start["success_rate"] < 0.35, "a random policy should know nothing yet"
    assert end["success_rate_low"] > start["success_rate_high"], (start["success_rate"], end["success_rate"])
