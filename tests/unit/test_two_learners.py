"""Two gloo processes against one, in float64: weights and metrics of several optimizer steps agree."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tiny_policy import TinyPolicy, make_trainer, random_rows

from rllib_agentic.advantages.gae import GAEEstimator
from rllib_agentic.learner.report import LearnerReport, merge_reports
from rllib_agentic.learner.train_batch import TrainBatch, plan_minibatches
from rllib_agentic.losses.policy import DPO, GSPO, PPOClip, WeightedSft

CASES: dict[str, dict[str, Any]] = {
    "ppo_clip": {},
    "recomputed": {"recompute_old_logprobs": True, "importance": {"mode": "sequence_truncate"}},
    "sequence": {"loss": GSPO(clip_low=0.5, clip_high=0.5), "recompute_old_logprobs": True},
    "critic": {"critic": GAEEstimator(lam=0.9)},
    "cloning": {"loss": WeightedSft()},
    "reference": {"kl": {"coefficient": 0.1, "estimator": "k3"}, "entropy_coefficient": 0.01, "reference": True},
    "dpo": {"loss": DPO(beta=0.3), "reference": True},
}


def rewarded(row: Any) -> Any:
    rewards = np.zeros(len(row), np.float32)
    rewards[row.action_mask.nonzero()[0][-1]] = row.trajectory % 2
    return replace(row, rewards=rewards)


def paired(row: Any, side: int) -> Any:
    return replace(row, advantages=np.where(row.action_mask, side, 0).astype(np.float32))


def plan(case: str) -> TrainBatch:
    # 5 trajectories, 9 rows, 5 steps an epoch: each step is one trajectory, so one learner has none of it
    rows = [rewarded(row) for row in random_rows(9, legal=True, rows_per_trajectory=2)]
    if case == "dpo":  # the rows of a trajectory's number are a pair; the ninth, alone, gets a worse one
        rows = [*rows, replace(rows[0], trajectory=4)]
        rows = [paired(row, 1 - 2 * (i % 2)) for i, row in enumerate(rows)]
    whole = plan_minibatches(rows, num_epochs=1, num_minibatches=2, seed=3)
    single = plan_minibatches(rows, num_epochs=1, num_minibatches=5, seed=4)
    return TrainBatch(whole.rows, whole.minibatches + single.minibatches)


def train(case: str, *, distributed: bool) -> tuple[LearnerReport, list[torch.Tensor]]:
    policy = TinyPolicy()
    options = {"loss": PPOClip(), "max_tokens_per_micro_batch": 60, "grad_clip": 0.5, **CASES[case]}
    if options.pop("reference", False):
        options["reference"] = TinyPolicy(seed=1)
    trainer = make_trainer(policy, distributed=distributed, **options)
    report = trainer.train(plan(case))
    return report, [p.detach() for p in policy.parameters()]


def member(rank: int, case: str, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.save(train(case, distributed=True), folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("case", CASES)
def test_two_learners_equal_one(case, tmp_path):
    fork = multiprocessing.get_context("fork")
    members = [fork.Process(target=member, args=(rank, case, tmp_path)) for rank in range(2)]
    for process in members:
        process.start()
    for process in members:
        process.join(timeout=120)
        alive = process.is_alive()
        process.kill()
        assert not alive and process.exitcode == 0
    results = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2)]
    report, expected = train(case, distributed=False)
    for one, two, alone in zip(results[0][1], results[1][1], expected, strict=True):
        assert torch.equal(one, two)
        torch.testing.assert_close(one, alone, rtol=1e-7, atol=1e-9)
    whole, joined = merge_reports([report]), merge_reports([r for r, _ in results])
    assert whole["optimizer_steps"] == 7
    for name, value in whole.items():
        if name not in ("tokens_per_s", "micro_batches"):
            assert joined[name] == pytest.approx(value, rel=1e-6, abs=1e-9), name
