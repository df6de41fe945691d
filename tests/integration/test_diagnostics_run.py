"""Diagnostics in a run: what they measure there, and what an alarm does to it."""

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

pytestmark = pytest.mark.ray

ALWAYS_RINGS = {"max_kl": 1e-300, "patience": 4}  # float noise between engine and learner is a fault to this one


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def config(**changes: Any) -> GRPOConfig:
    small = {
        "env_config": {
            "backend": "local",
            "args": {"safe_arms": 2, "risky_arms": 2, "low_reward": 0.0, "high_probability": 1.0, "pulls": 3},
        },
        "model": {"preset": "tiny", "hidden_size": 32, "num_layers": 1},
        "rollout": {"group_size": 3, "groups_per_iteration": 4, "max_turns": 3},
        "lr": 1e-2,
        "seed": 3,
    }
    return GRPOConfig().environment("bandit").update_from_dict(small).update_from_dict(changes)


def weights(algo: GRPO) -> dict[str, np.ndarray]:
    return {k: v.copy() for k, v in algo.learner_group.get_weights()["default_policy"].items()}


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(one[name], value) for name, value in other.items())


def test_what_is_measured_in_a_run() -> None:
    measures = {"template_collapse": {"every": 2, "samples": 8}}
    algo = config(diagnostics=measures).build_algo()
    try:
        results = [algo.train() for _ in range(3)]
        stored = TrajectoryReader(Path(algo.logdir) / "trajectories")
        first = [s.trajectory for s in stored.select(iterations=[1])]
    finally:
        algo.stop()
    assert [("template_collapse" in r["diagnostics"]) for r in results] == [True, True, False]
    seen = results[0]["diagnostics"]
    assert seen["drift"]["reencoded_tokens"] == 0 and seen["drift"]["stale_versions"] == 0
    assert seen["drift"]["kl"] < 1e-6 and seen["alarms"] == 0
    groups = [[t for t in first if t.group_id == f"1.0.{place}"] for place in range(4)]
    chosen = [group[member] for member in range(3) for group in groups][:8]
    sampled = np.mean([t.turns[0].logprobs.sum() for t in chosen])  # what the engine said of the same responses
    collapse = seen["template_collapse"]
    assert collapse["conditional_entropy"] == pytest.approx(-sampled, rel=1e-4)
    prompts = {t.turns[0].context_ids.tobytes(): len(t.turns[0].context_ids) for t in chosen}
    spoken = sum(len(t.turns[0].action_ids) for t in chosen)
    assert collapse["scored_tokens"] == 8 * sum(prompts.values()) + len(prompts) * spoken
    assert collapse["mutual_information"] + 0.05 >= 0 and collapse["mutual_information"] < np.log(len(prompts))


@pytest.mark.parametrize("learners", [0, 1])  # in the algorithm's process, or an actor of its own
def test_going_back_restores_weights_under_a_new_version_and_other_settings(tmp_path: Path, learners: int) -> None:
    drift = ALWAYS_RINGS | {"on_alarm": {"action": "rollback", "change": {"lr": 0.0}, "at_most": 1}}
    algo = config(diagnostics={"drift": drift, "keep_every": 1}, num_learners=learners).build_algo()
    try:
        seen, events = [], []
        for _ in range(4):
            result = algo.train()
            events += result.get("events", [])
            seen.append(weights(algo))
        assert not equal(seen[1], seen[2]) and equal(seen[2], seen[3])  # the fourth rang: back to the third
        (event,) = events
        assert (event["kind"], event["iteration"]) == ("drift", 4)
        assert "back to the last healthy weights; changed: {'lr': 0.0}" in event["message"]
        assert algo._dispatcher.policy_version == 5  # four updates, and one more for going back
        saved = algo.save_to_path(str(tmp_path / "checkpoint"))
        algo.train()
        assert equal(weights(algo), seen[3])  # the learning rate is 0 now
    finally:
        algo.stop()
    resumed = load_algorithm(saved)
    try:
        resumed.train()
        assert equal(weights(resumed), seen[3])  # and still is
        for _ in range(3):
            result = resumed.train()
        assert result["done"] and result["stopped_by"].startswith("drift: ")  # at_most 1: the second one stops
    finally:
        resumed.stop()


def test_a_resumed_run_goes_back_where_the_one_that_was_never_stopped_does(tmp_path: Path) -> None:
    rolls_back = {"drift": ALWAYS_RINGS | {"on_alarm": "rollback"}, "keep_every": 2}
    algo = config(diagnostics=rolls_back).build_algo()
    try:
        before = algo.save_to_path(str(tmp_path / "before"))
        good = [(algo.train(), weights(algo))[1] for _ in range(3)][1]
        saved = algo.save_to_path(str(tmp_path / "checkpoint"))
        (event,) = algo.train()["events"]
        assert "back to the last healthy weights" in event["message"] and equal(weights(algo), good)
        after = (algo.train(), weights(algo))[1]
        algo.restore_from_path(before)  # of a time without healthy weights: those of later are not its own
        algo.train()
        assert not algo._last_good.exists
    finally:
        algo.stop()
    resumed = load_algorithm(saved)
    try:
        (event,) = resumed.train()["events"]
        assert "back to the last healthy weights" in event["message"] and equal(weights(resumed), good)
        resumed.train()
        assert equal(weights(resumed), after)
    finally:
        resumed.stop()


def test_a_change_that_cannot_be_made_stops_the_start() -> None:
    mistakes = [
        ({"model": {"preset": "smollm2"}}, r"on_alarm\.change\.model: cannot change while a run goes on"),
        ({"learner": {"kl": {"coefficient": 0.1}}}, "there is no reference policy"),
        ({"rollout": {"temperature": 0.5}}, "temperature: cannot change"),
        ({"lrr": 1}, r"on_alarm\.change\.lrr"),
        ({"rollout": {"group_sise": 1}}, "Did you mean 'group_size'"),
        ({"advantages": {"type": "gae"}}, "a critic cannot come or go"),
    ]
    for change, message in mistakes:
        wrong = {"drift": {"on_alarm": {"action": "change", "change": change}}}
        with pytest.raises(InputError, match=message):
            config(diagnostics=wrong).validate()
