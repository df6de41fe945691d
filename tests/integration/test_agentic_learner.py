"""The RLlib learner: state that resumes bit by bit, precision, and two gloo learners against one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import learner_group
import numpy as np
import pytest
import ray
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner_group import LearnerGroup
from tiny_policy import random_rows

from rllib_agentic.advantages.gae import GAEEstimator
from rllib_agentic.learner.agentic_learner import AgenticLearner
from rllib_agentic.learner.report import merge_reports
from rllib_agentic.learner.train_batch import TrainBatch, plan_minibatches


def build(**options: Any) -> AgenticLearner:
    config = learner_group.learner_config(**options)
    learner = AgenticLearner(config=config, module_spec=config.get_multi_rl_module_spec())
    learner.build()
    return learner


def weights(learner: AgenticLearner) -> dict[str, np.ndarray]:
    return copy.deepcopy(learner.module[DEFAULT_MODULE_ID].get_state())


def plan(seed: int, **options: Any) -> TrainBatch:
    return plan_minibatches(
        random_rows(9, seed=seed, legal=True, rows_per_trajectory=2), seed=seed, num_minibatches=2, **options
    )


def assert_equal_weights(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> None:
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


OPTIONS: dict[str, Any] = {
    "weight_decay": 0.1, "warmup_steps": 3, "schedule": "cosine", "decay_steps": 20, "grad_clip": 0.3,
    "kl": {"coefficient": 0.1}, "entropy_coefficient": 0.01,
}  # fmt: skip


def test_a_resumed_learner_equals_one_never_stopped():
    straight = build(**OPTIONS)
    for seed in range(2):
        straight.train_rows(plan(seed))
    saved = straight.get_state()
    for seed in range(2, 4):
        straight.train_rows(plan(seed))
    resumed = build(**OPTIONS)
    resumed.set_state(copy.deepcopy(saved))
    reports = [resumed.train_rows(plan(seed)) for seed in range(2, 4)]
    assert_equal_weights(weights(resumed), weights(straight))
    assert merge_reports(reports[-1:])["lifetime_optimizer_steps"] == 8
    for one, two in zip(resumed._get_optimizer_state().values(), straight._get_optimizer_state().values(), strict=True):
        torch.testing.assert_close(one["state"], two["state"], rtol=0, atol=0)


def test_a_checkpoint_on_disk_resumes_too(tmp_path):
    straight = build(**OPTIONS)
    straight.train_rows(plan(0))
    straight.save_to_path(tmp_path / "learner")
    straight.train_rows(plan(1))
    resumed = build(**OPTIONS)
    resumed.restore_from_path(tmp_path / "learner")
    resumed.train_rows(plan(1))
    assert_equal_weights(weights(resumed), weights(straight))


def test_saved_state_does_not_change_when_training_goes_on():
    learner = build()
    learner.train_rows(plan(0))
    saved = learner.get_state()
    kept = copy.deepcopy(saved["optimizer"])
    learner.train_rows(plan(1))
    for name, entry in kept.items():
        torch.testing.assert_close(saved["optimizer"][name]["state"], entry["state"], rtol=0, atol=0)


def test_an_older_state_is_restored_in_place():
    learner = build()
    learner.train_rows(plan(0))
    saved, before = copy.deepcopy(learner.get_state()), weights(learner)
    learner.train_rows(plan(1))
    assert learner.get_state()["weights_seq_no"] == 2
    learner.set_state(saved)
    assert_equal_weights(weights(learner), before)
    assert learner.get_state()["weights_seq_no"] == 1


def test_the_reference_is_in_no_checkpoint():
    plain, pulled = build(), build(kl={"coefficient": 0.1})
    assert plain.get_state()["rl_module"][DEFAULT_MODULE_ID].keys() == pulled.get_state()["rl_module"][
        DEFAULT_MODULE_ID
    ].keys()  # fmt: skip
    before = weights(plain)
    pulled.train_rows(plan(0))
    reference = pulled._trainer._reference
    assert reference is not None
    assert_equal_weights(copy.deepcopy(reference.module.get_state()), before)  # type: ignore[attr-defined]


def test_rllibs_own_update_is_refused():
    with pytest.raises(RuntimeError, match="train_rows"):
        build().compute_loss_for_module(module_id=DEFAULT_MODULE_ID)


def test_weight_decay_is_on_matrices_only():
    decayed, free = next(iter(build(weight_decay=0.5)._named_optimizers.values())).param_groups
    assert decayed["weight_decay"] == 0.5 and all(p.ndim >= 2 for p in decayed["params"])
    assert free["weight_decay"] == 0.0 and all(p.ndim < 2 for p in free["params"]) and free["params"]


def test_bfloat16_models_keep_float32_parameters_and_state():
    learner = build(dtype="bfloat16", lr=1e-5)
    module = learner.module[DEFAULT_MODULE_ID]
    assert {p.dtype for p in module.parameters()} == {torch.float32}
    before = weights(learner)
    metrics = merge_reports([learner.train_rows(plan(0))])
    assert metrics["skipped_steps"] == 0
    changed = [np.abs(before[name] - now).max() for name, now in weights(learner).items()]
    assert min(changed) > 0  # steps this small would be rounded away in bfloat16
    exact = merge_reports([build(lr=1e-5).train_rows(plan(0))])
    assert 0 < abs(metrics["entropy"] - exact["entropy"]) < 0.05


def test_critic_learns_returns():
    # whitening, bootstrap and row joins are the estimator's; here: do values move to the targets
    learner = build(critic=GAEEstimator(), lr=3e-2, value={"coefficient": 1.0, "clip": None, "warmup_steps": 60})
    rows = [replace(row, rewards=_at_end(row)) for row in random_rows(8, seed=5)]
    losses = [merge_reports([learner.train_rows(plan_minibatches(rows))])["value_loss"] for _ in range(40)]
    assert losses[0] == pytest.approx(0.5, rel=1e-6)  # an untrained critic says 0, every return is 1
    assert losses[-1] < 0.05


def _at_end(row: Any) -> np.ndarray:
    rewards = np.zeros(len(row), np.float32)
    rewards[row.action_mask.nonzero()[0][-1]] = 1.0
    return rewards


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, object_store_memory=100_000_000, include_dashboard=False)
    ray.cloudpickle.register_pickle_by_value(learner_group)
    yield
    ray.cloudpickle.unregister_pickle_by_value(learner_group)
    ray.shutdown()


@pytest.mark.ray
def test_two_gloo_learners_equal_one(cluster):
    # 5 trajectories in 3 steps: the learners get different numbers of rows and micro-batches, sometimes none
    options: dict[str, Any] = {
        "critic": GAEEstimator(lam=0.9), "max_tokens_per_micro_batch": 40, "recompute_old_logprobs": True, "lr": 1e-3,
        "importance": {"mode": "sequence_truncate"},
    }  # fmt: skip
    rows = [replace(row, rewards=_at_end(row)) for row in random_rows(9, legal=True, rows_per_trajectory=2)]
    batch = plan_minibatches(rows, num_epochs=2, num_minibatches=5, seed=3)
    alone = build(**options)
    expected = merge_reports([alone.train_rows(batch)])
    group = LearnerGroup(config=learner_group.learner_config(num_learners=2, **options))
    try:
        reports = [r.get() for r in group.foreach_learner(lambda learner: learner.train_rows(batch))]
        found = [r.get() for r in group.foreach_learner(lambda learner: learner.module[DEFAULT_MODULE_ID].get_state())]
        saved = group.get_state()["learner"]
    finally:
        group.shutdown()
    assert_equal_weights(found[0], found[1])
    for name, value in weights(alone).items():
        np.testing.assert_allclose(found[0][name], value, atol=2e-5, err_msg=name)
    metrics = merge_reports(reports)
    for name, number in expected.items():
        if name not in ("tokens_per_s", "micro_batches", "padding_frac"):
            assert metrics[name] == pytest.approx(number, rel=2e-3, abs=1e-4), name
    assert saved["weights_seq_no"] == 1
