"""Plans, shares and micro-batches: every row once an epoch, trajectories whole, weights of the whole step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_policy import TinyPolicy, make_row, make_trainer, random_rows

from rllib_agentic.advantages.gae import GAEEstimator
from rllib_agentic.learner.critic import critic_columns, row_values
from rllib_agentic.learner.micro_batches import make_micro_batches, split_by_tokens, trained_length
from rllib_agentic.learner.schedule import learning_rate
from rllib_agentic.learner.settings import LearnerSettings
from rllib_agentic.learner.train_batch import plan_minibatches
from rllib_agentic.losses.policy import CISPO, GSPO, SAPO, PPOClip


def test_every_row_is_trained_once_an_epoch():
    # 10 trajectories in 4 steps: 3, 3, 2, 2; no step is filled up with rows seen already
    rows = random_rows(20, rows_per_trajectory=2)
    batch = plan_minibatches(rows, num_epochs=2, num_minibatches=4, seed=1)
    assert len(batch.minibatches) == 8
    for epoch in (batch.minibatches[:4], batch.minibatches[4:]):
        assert sorted(i for m in epoch for i in m.rows.tolist()) == list(range(20))
        assert sorted(len(m) for m in epoch) == [4, 4, 6, 6]
        for minibatch in epoch:
            assert len({rows[i].trajectory for i in minibatch.rows}) * 2 == len(minibatch)


def test_shuffles_follow_the_seed_and_differ_between_epochs():
    rows = random_rows(12)
    one, two, other = (plan_minibatches(rows, num_epochs=2, num_minibatches=3, seed=s) for s in (5, 5, 6))
    taken = [[m.rows.tolist() for m in batch.minibatches] for batch in (one, two, other)]
    assert taken[0] == taken[1] != taken[2]
    assert taken[0][:3] != taken[0][3:]


def test_weights_are_those_of_the_step():
    rows = [make_row([0, 1, 1, 1], trajectory=0), make_row([0, 1], trajectory=1)]
    (minibatch,) = plan_minibatches(rows, aggregation="token_mean").minibatches
    assert minibatch.weights.tolist() == [0.25, 0.25]
    steps = plan_minibatches(rows, aggregation="token_mean", num_minibatches=2).minibatches
    assert sorted(m.weights.tolist() for m in steps) == [[1 / 3], [1.0]]


@pytest.mark.parametrize(("options", "steps"), [({"num_minibatches": 9}, 3), ({"minibatch_size": 2}, 2), ({}, 1)])
def test_number_of_steps(options, steps):
    assert len(plan_minibatches(random_rows(3), **options).minibatches) == steps


def test_no_rows_give_no_steps():
    assert plan_minibatches([]).minibatches == ()


@pytest.mark.parametrize("learners", [1, 2, 3, 7])
def test_shares_partition_each_step(learners):
    rows = random_rows(15, rows_per_trajectory=3)
    batch = plan_minibatches(rows, num_epochs=2, num_minibatches=2)
    shares = [batch.shard(rank, learners) for rank in range(learners)]
    for step, minibatch in enumerate(batch.minibatches):
        parts = [share.minibatches[step] for share in shares]
        assert sorted(i for p in parts for i in p.rows.tolist()) == minibatch.rows.tolist()
        weight = dict(zip(minibatch.rows.tolist(), minibatch.weights.tolist(), strict=True))
        assert all(weight[i] == w for p in parts for i, w in zip(p.rows.tolist(), p.weights, strict=True))
        homes: dict[int, set[int]] = {}
        for rank, part in enumerate(parts):
            for i in part.rows.tolist():
                homes.setdefault(rows[i].trajectory, set()).add(rank)
        assert all(len(ranks) == 1 for ranks in homes.values())
    owned = [batch.owned_by(rank, learners) for rank in range(learners)]
    assert sorted(i for o in owned for i in o) == list(range(15))
    assert all(
        owned[rank] <= {i for m in share.minibatches for i in m.rows.tolist()} for rank, share in enumerate(shares)
    )


def test_shares_are_balanced_by_tokens():
    lengths = [9, 2, 2, 3, 8, 4, 4]
    rows = [make_row([0] * (n - 1) + [1], trajectory=i) for i, n in enumerate(lengths)]
    batch = plan_minibatches(rows)
    loads = [sum(lengths[i] for i in batch.shard(r, 2).minibatches[0].rows) for r in range(2)]
    assert sum(loads) == 32 and abs(loads[0] - loads[1]) <= 2


def test_micro_batches_respect_the_budget():
    lengths = np.random.default_rng(0).integers(1, 60, 100).tolist()
    groups = split_by_tokens(lengths, 128)
    assert sorted(i for g in groups for i in g) == list(range(100))
    assert all(len(g) * max(lengths[i] for i in g) <= 128 for g in groups)
    padding = sum(len(g) * max(lengths[i] for i in g) - sum(lengths[i] for i in g) for g in groups)
    assert padding < 0.1 * sum(lengths)
    assert split_by_tokens([5, 500, 4], 128) == [[1], [0, 2]]


def test_tokens_after_the_last_action_are_left_out():
    row = make_row([0, 0, 1, 1, 0, 0, 0])
    assert trained_length(row) == 4
    (batch,) = make_micro_batches([row], [0], [1.0], max_tokens=100)
    assert batch.token_ids.tolist() == [row.token_ids[:4].tolist()]


def test_columns_land_on_their_tokens():
    rows = [make_row([0, 1, 0, 1, 1], seed=1), make_row([0, 0, 1], seed=2)]
    extra = {"old_logprobs": {0: np.array([-1.0, -2.0, -3.0]), 1: np.array([-4.0])}}
    (batch,) = make_micro_batches(rows, [0, 1], [0.5, 0.25], max_tokens=100, columns=extra)
    assert batch.columns["old_logprobs"].tolist() == [[0, -1, 0, -2, -3], [0, 0, -4, 0, 0]]
    assert batch.columns["engine_logprobs"][0].tolist() == rows[0].logprobs.tolist()
    assert batch.weights.tolist() == [0.5, 0.25] and batch.action_mask.sum(1).tolist() == [3, 1]


def test_the_baseline_of_an_action_is_the_value_of_the_context_before_it():
    # AL22, with a critic that returns the position of the last context token
    row = replace(make_row([0, 0, 1, 1, 0, 0, 1]), turn_index=np.array([-1, -1, 0, 0, -1, -1, 1], np.int32))

    def position_of(ids: torch.Tensor) -> torch.Tensor:
        return torch.arange(ids.shape[1], dtype=torch.float64).expand(ids.shape)

    values = row_values([row], [0], position_of, max_tokens=100, device="cpu")
    columns = critic_columns([row], values, GAEEstimator(whiten=False), {0}, distributed=False)
    assert columns["old_values"][0].tolist() == [1, 2, 5]
    assert columns["returns"][0] == pytest.approx([0, 0, 0])  # gamma 1, no reward, the task ended
    assert columns["advantages"][0] == pytest.approx([-1, -2, -5])


def test_whitening_counts_every_row_once():
    rows = [replace(row, rewards=row.action_mask.astype(np.float32)) for row in random_rows(4)]
    values = {i: np.zeros(len(row)) for i, row in enumerate(rows)}
    columns = critic_columns(rows, values, GAEEstimator(), {0, 1, 2, 3}, distributed=False)
    everything = np.concatenate(list(columns["advantages"].values()))
    assert everything.mean() == pytest.approx(0, abs=1e-6) and everything.std() == pytest.approx(1, abs=1e-5)


def test_learning_rate():
    cosine = LearnerSettings(lr=2.0, warmup_steps=4, schedule="cosine", decay_steps=8, min_lr_ratio=0.1)
    assert [learning_rate(cosine, s) for s in (0, 3, 4, 6, 8, 99)] == pytest.approx([0.5, 2.0, 2.0, 1.1, 0.2, 0.2])
    constant = LearnerSettings(lr=2.0)
    assert [learning_rate(constant, s) for s in (0, 10**6)] == [2.0, 2.0]


@pytest.mark.parametrize("loss", [PPOClip(), GSPO(), CISPO(), SAPO()])
def test_rows_without_advantages_may_be_left_out(loss):
    rows = random_rows(9, seed=3)
    rows = [replace(r, advantages=r.advantages * (r.trajectory % 3 == 0)) for r in rows]
    whole = plan_minibatches(rows, num_epochs=2, num_minibatches=3, seed=1)
    short = whole.without_silent_rows()
    assert len(short.rows) == 3 and len(short.minibatches) == 6
    policies = [TinyPolicy() for _ in range(3)]
    make_trainer(policies[0], loss).train(whole)
    make_trainer(policies[1], loss).train(short)
    one, two, start = (list(policy.model.parameters()) for policy in policies)
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(one, two, strict=True))
    assert not torch.allclose(one[0], start[0])


def test_a_trajectory_with_one_silent_row_stays_whole():
    # a ratio of the whole trajectory reads its silent row too
    rows = [make_row([0, 1], seed=i, trajectory=t) for i, t in enumerate([0, 0, 1])]
    silent = np.zeros(2, np.float32)
    batch = plan_minibatches([rows[0], replace(rows[1], advantages=silent), replace(rows[2], advantages=silent)])
    short = batch.without_silent_rows()
    assert len(short.rows) == 2 and {row.trajectory for row in short.rows} == {0}
    assert short.minibatches[0].rows.tolist() == [0, 1]
