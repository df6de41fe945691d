"""Rollouts that go on while the learner works, with the real engine, runners and learner.

1. What is trained is at most ``max_staleness`` versions old, and every token carries the version that sampled it.
2. The correction for old tokens is on unless it is switched off.
3. Runners may die; a run that is restored plays again what was out.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from rllib_agentic.algorithms.checkpoints import load_algorithm
from rllib_agentic.algorithms.grpo import GRPO, GRPOConfig
from rllib_agentic.envs import registry
from rllib_agentic.envs.registry import EnvEntry
from rllib_agentic.errors import InputError
from rllib_agentic.store import TrajectoryReader

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    folder = str(Path(__file__).parents[1])
    paths = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    ray.init(
        num_cpus=4,
        object_store_memory=100 << 20,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def slow_env(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EnvEntry("slow_bandit", "slow_env:SlowBandit")
    monkeypatch.setattr(registry, "_BUILT_IN", (*registry._BUILT_IN, entry))


def config(env: str = "slow_bandit", **changes: Any) -> GRPOConfig:
    small = {
        "env_config": {"backend": "local", "args": {"pulls": 3}},
        "model": {"preset": "tiny", "hidden_size": 32, "num_layers": 2},
        "rollout": {"group_size": 4, "groups_per_iteration": 2, "max_turns": 3, "max_staleness": 1},
        "evaluation_duration": 4,
        "lr": 1e-2,
        "seed": 3,
    }
    return GRPOConfig().environment(env).update_from_dict(small).update_from_dict(changes)


def ages_of(algo: GRPO) -> list[int]:
    """How old the oldest token of each stored trajectory was when it was trained; iteration i trains version i - 1."""
    stored = TrajectoryReader(Path(algo.logdir) / "trajectories")
    return [s.iteration - 1 - s.trajectory.oldest_version for s in stored if s.trajectory.oldest_version is not None]


@pytest.mark.parametrize("turns_at_update", ["interrupt", "finish"])
def test_rollouts_go_on_while_the_learner_works(turns_at_update: str) -> None:
    algo = config(rollout={"turns_at_update": turns_at_update}).build_algo()
    try:
        results = [algo.train() for _ in range(5)]
        ages = ages_of(algo)
    finally:
        algo.stop()
    assert len(ages) == 5 * 8
    assert min(ages) >= 0 and max(ages) == 1
    assert max(r["asynchrony"]["staleness_max"] for r in results) == 1
    assert all(r["asynchrony"]["groups_in_flight"] + r["asynchrony"]["groups_landed"] <= 2 for r in results)
    assert sum(r["asynchrony"]["dropped_groups"] for r in results) == 0
    learned = [r["learners"]["default_policy"] for r in results]
    assert all(np.isfinite(x["policy_loss"]) for x in learned)
    assert learned[0]["mismatch_max"] < 1e-4 < max(x["mismatch_max"] for x in learned)  # old tokens are off policy


def test_the_correction_is_on_unless_it_is_switched_off() -> None:
    learner = config().sections().learner
    assert learner.recompute_old_logprobs and learner.importance.mode == "token_truncate"
    drift = config().sections().diagnostics.drift
    assert drift is not None and drift.max_stale_versions == 1
    assert config(rollout={"max_staleness": 0}).sections().learner.importance.mode == "off"
    assert config(learner={"importance": {"mode": "off"}}).sections().learner.recompute_old_logprobs is False
    masked = config(learner={"recompute_old_logprobs": True, "importance": {"mode": "token_mask"}}).sections().learner
    assert masked.importance.mode == "token_mask"


def test_an_alarm_cannot_make_a_run_asynchronous() -> None:
    reaction = {"action": "change", "change": {"rollout": {"max_staleness": 0}}}
    with pytest.raises(InputError, match="max_staleness: cannot begin or end to be 0"):
        config(diagnostics={"drift": {"on_alarm": reaction}}).validate()


def test_an_offline_algorithm_refuses_a_bound_on_staleness() -> None:
    from rllib_agentic.algorithms.agent_evol import AgentEvolConfig

    asynchronous = AgentEvolConfig().environment("bandit").env_runners(rollout={"max_staleness": 1})
    with pytest.raises(InputError, match="AgentEvol does not sample while it learns"):
        asynchronous.sections()


def test_remote_runners_play_ahead_and_evaluation_sees_one_version(tmp_path: Path) -> None:
    algo = config("bandit", num_env_runners=2, rollout={"max_staleness": 2}).build_algo()
    try:
        algo.train()
        pid = algo.env_runner_group.foreach_env_runner(lambda runner: os.getpid(), local_env_runner=False)[0]
        os.kill(pid, signal.SIGKILL)
        results = [algo.train() for _ in range(3)]
        assert all(r["env_runners"]["num_valid_episodes"] == 8 for r in results)
        assert max(ages_of(algo)) <= 2
        assert algo.evaluate()["num_episodes"] == 4
        saved = algo.save_to_path(str(tmp_path / "checkpoint"))
        out = [plans[0].group_id for plans in algo._ahead.state()["out"]]
    finally:
        algo.stop()
    resumed = load_algorithm(saved, {"num_env_runners": 0})
    try:
        assert [plans[0].group_id for plans in resumed._ahead.state()["out"]] == out
        result = resumed.train()
        assert result["training_iteration"] == 5 and result["env_runners"]["num_valid_episodes"] == 8
        again = {s.trajectory.group_id for s in TrajectoryReader(Path(resumed.logdir) / "trajectories")}
        assert again <= set(out) | {f"ahead.{resumed._ahead.state()['dealt'] - 1 - i}" for i in range(6)}
    finally:
        resumed.stop()
