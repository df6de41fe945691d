"""Filters in a run: what is dropped is sampled again, or the batch shrinks; and a run that keeps nothing ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from rllib_agentic.algorithms.grpo import GRPOConfig
from rllib_agentic.errors import TooManyFailuresError
from rllib_agentic.store import StoredTrajectory, TrajectoryReader

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def trained(iterations: int = 1, **changes: Any) -> tuple[list[dict[str, Any]], list[StoredTrajectory]]:
    """Results, and what was stored of the first iteration."""
    small = {
        "env_config": {
            "backend": "local",
            "args": {"safe_arms": 2, "risky_arms": 2, "low_reward": 0.0, "high_probability": 1.0, "pulls": 3},
        },
        "model": {"preset": "tiny", "hidden_size": 32, "num_layers": 1},
        "rollout": {"group_size": 3, "groups_per_iteration": 6, "max_turns": 3},
        "lr": 1e-2,
        "seed": 3,
    }
    algo = GRPOConfig().environment("bandit").update_from_dict(small).update_from_dict(changes).build_algo()
    try:
        results = [algo.train() for _ in range(iterations)]
        return results, list(TrajectoryReader(Path(algo.logdir) / "trajectories").select(iterations=[1]))
    finally:
        algo.stop()


def by_group(stored: list[StoredTrajectory]) -> dict[str, list[StoredTrajectory]]:
    groups: dict[str, list[StoredTrajectory]] = {}
    for one in stored:
        groups.setdefault(one.trajectory.group_id, []).append(one)
    return groups


def test_a_shrunk_batch_takes_a_step_that_is_smaller_by_what_was_dropped() -> None:
    best_two = [{"type": "reward_variance", "rule": "top_k", "k": 2}]
    norms = {}
    for scale in ("none", "linear", "sqrt"):
        (result,), stored = trained(filters=best_two, refill={"scale_loss": scale})
        norms[scale] = result["learners"]["default_policy"]["grad_norm"]
        kept = {name for name, group in by_group(stored).items() if group[0].kept}
        spread = {n: np.std([s.trajectory.total_reward for s in g], ddof=1) for n, g in by_group(stored).items()}
        assert len(kept) == 2 and min(spread[n] for n in kept) >= max(spread[n] for n in spread.keys() - kept)
        seen = result["env_runners"]["filter"]
        assert seen["kept_share"] == pytest.approx(1 / 3) and result["env_runners"]["sampling_tries"] == 1
        assert seen["kept_reward_variance"] == pytest.approx(np.mean([spread[n] ** 2 for n in kept]))
        assert seen["dropped_reward_variance"] == pytest.approx(np.mean([spread[n] ** 2 for n in spread.keys() - kept]))
        trained_tokens = sum(s.trajectory.num_action_tokens for s in stored if s.kept)
        assert result["learners"]["default_policy"]["trained_tokens"] == trained_tokens
    assert norms["linear"] == pytest.approx(norms["none"] / 3, rel=1e-4)  # before clipping
    assert norms["sqrt"] == pytest.approx(norms["none"] / np.sqrt(3), rel=1e-4)


def test_what_was_dropped_is_sampled_again_until_the_batch_is_full() -> None:
    refill = {"resample": True, "max_tries": 20}
    (result,), stored = trained(filters=[{"type": "success_rate"}], refill=refill)
    groups = by_group(stored)
    solved = {name: [s.trajectory.success for s in group] for name, group in groups.items()}
    kept = {name for name, group in groups.items() if group[0].kept}
    assert len(kept) == 6 and all(any(solved[name]) and not all(solved[name]) for name in kept)
    tries = result["env_runners"]["sampling_tries"]
    assert 1 < tries <= 20 and {int(name.split(".")[1]) for name in groups} == set(range(int(tries)))
    tasks = [group[0].trajectory.task for group in groups.values()]
    assert len(set(tasks)) == len(tasks)  # each try plays tasks of its own


def test_a_run_that_keeps_nothing_ends_with_the_reason() -> None:
    nothing = {"filters": [{"type": "reward_variance", "rule": "threshold", "threshold": 5.0}]}
    with pytest.raises(TooManyFailuresError, match=r"no group was kept for 2 iterations in a row"):
        trained(iterations=4, refill={"stop_after_empty": 2}, **nothing)
    results, _ = trained(iterations=4, refill={"stop_after_empty": None}, **nothing)
    assert [r["learners"]["default_policy"]["trained_tokens"] for r in results] == [0.0] * 4
    assert results[3]["env_runners"]["filter"]["tasks_seen"] == 24
