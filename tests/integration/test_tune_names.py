"""Presets stay known to Tune by name, however often Ray stops and starts within one process."""

from __future__ import annotations

import pytest
import ray
from ray.tune.registry import get_trainable_cls, register_trainable

import rllib_agentic

pytestmark = pytest.mark.ray


def test_names_outlive_a_second_start_of_ray() -> None:
    for _ in range(2):
        ray.init(
            address="local", num_cpus=1, object_store_memory=80_000_000, include_dashboard=False, log_to_driver=False
        )
        try:
            assert get_trainable_cls("GRPO") is rllib_agentic.GRPO
            register_trainable("somebody's own", rllib_agentic.GRPO)  # Tune then forgets what it has told this Ray
        finally:
            ray.shutdown()
        assert get_trainable_cls("StarPO_S") is rllib_agentic.StarPO_S
