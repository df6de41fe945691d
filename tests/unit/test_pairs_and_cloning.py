"""DPO and cloning in the learner: loss and gradient of whole trajectories, in float64, however rows are cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_policy import TinyPolicy, make_trainer, random_rows

from rllib_agentic.learner.gradients import collect_gradients
from rllib_agentic.learner.report import Tally, merge_reports
from rllib_agentic.learner.scoring import score_rows
from rllib_agentic.learner.train_batch import TrainBatch, plan_minibatches
from rllib_agentic.losses import dpo_loss
from rllib_agentic.losses.policy import DPO, LossInputs, PPOClip, Sft, WeightedSft
from rllib_agentic.trajectory import Row


def with_advantages(row: Row, value: float, pair: int) -> Row:
    return replace(row, advantages=np.where(row.action_mask, value, 0).astype(np.float32), trajectory=pair)


def pair_rows(pairs: int, *, legal: bool = False, seed: int = 0) -> list[Row]:
    """Each pair has two rows of its better trajectory and one or two of its worse one."""
    rows = iter(random_rows(4 * pairs, legal=legal, seed=seed))
    found = []
    for pair in range(pairs):
        sides = [1.0, 1.0, -1.0] + [-1.0] * (pair % 2)
        found += [with_advantages(next(rows), side, pair) for side in sides]
    return found


def sums(policy: TinyPolicy, rows: list[Row], temperature: float) -> dict[tuple[int, bool], torch.Tensor]:
    """The logprob of each side of each pair, by the plain loop over full logits."""
    totals: dict[tuple[int, bool], torch.Tensor] = {}
    for row in rows:
        ids = torch.tensor(row.token_ids, dtype=torch.int64)
        logits = policy.model(ids[None]).logits[0] / temperature
        total = torch.zeros((), dtype=torch.float64)
        for action, t in enumerate(row.action_mask.nonzero()[0]):
            scores = logits[t - 1]
            allowed = row.legal_tokens.at(action) if row.legal_tokens is not None else np.zeros(0, int)
            if len(allowed):
                keep = torch.zeros(len(scores), dtype=torch.bool)
                keep[torch.tensor(allowed, dtype=torch.int64)] = True
                scores = scores.masked_fill(~keep, -torch.inf)
            total = total + scores.log_softmax(0)[ids[t]]
        key = (row.trajectory, bool(row.advantages.max() > 0))
        totals[key] = totals.get(key, torch.zeros((), dtype=torch.float64)) + total
    return totals


def by_hand(
    policy: TinyPolicy, reference: TinyPolicy, rows: list[Row], loss: DPO, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean DPO loss over pairs, written out, and its gradient."""
    now, then = sums(policy, rows, temperature), sums(reference, rows, temperature)
    pairs = sorted({row.trajectory for row in rows})
    total = torch.zeros((), dtype=torch.float64)
    for pair in pairs:
        better = now[pair, True] - then[pair, True].detach()
        worse = now[pair, False] - then[pair, False].detach()
        margin = loss.beta * (better - worse)
        right, wrong = 1 / (1 + (-margin).exp()), 1 / (1 + margin.exp())
        total = total - (1 - loss.label_smoothing) * right.log() - loss.label_smoothing * wrong.log()
    total = total / len(pairs)
    policy.zero_grad()
    total.backward()
    return total.detach(), torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None])


def in_the_learner(
    policy: TinyPolicy, reference: TinyPolicy, batch: TrainBatch, loss: DPO, temperature: float, budget: int
) -> tuple[Tally, torch.Tensor]:
    policy.zero_grad()
    trainer = make_trainer(
        policy, loss, temperature=temperature, reference=reference, max_tokens_per_micro_batch=budget
    )
    numbers = list(range(len(batch.rows)))
    scored = score_rows(trainer._reference, batch.rows, numbers, max_tokens=budget)  # type: ignore[arg-type]
    tally = Tally()
    trainer.accumulate(batch.rows, batch.minibatches[0], {"reference_logprobs": scored}, tally, first=True)
    return tally, torch.cat([g.flatten() for g in collect_gradients(list(policy.model.parameters()))])


@pytest.mark.parametrize("loss", [DPO(), DPO(beta=0.5, label_smoothing=0.1)], ids=repr)
@pytest.mark.parametrize("legal", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_dpo_of_whole_trajectories(loss: DPO, legal: bool, temperature: float):
    policy, reference = TinyPolicy(), TinyPolicy(seed=1)
    rows = pair_rows(3, legal=legal)
    expected, slope = by_hand(policy, reference, rows, loss, temperature)
    batch = plan_minibatches(rows, aggregation="sequence_mean_token_sum")
    for budget in (10_000, 60, 1):
        tally, found = in_the_learner(policy, reference, batch, loss, temperature, budget)
        torch.testing.assert_close(found, slope, rtol=1e-8, atol=1e-12)
        metrics = merge_reports([tally.report(1.0)])
        assert metrics["policy_loss"] == pytest.approx(float(expected), rel=1e-9)


def test_an_untouched_policy_has_loss_log_two_and_prefers_nothing():
    policy = TinyPolicy()
    batch = plan_minibatches(pair_rows(2), aggregation="sequence_mean_token_sum")
    tally, found = in_the_learner(policy, TinyPolicy(), batch, DPO(), 1.0, 1000)
    metrics = merge_reports([tally.report(1.0)])
    assert metrics["policy_loss"] == pytest.approx(np.log(2))
    assert metrics["preference_margin"] == pytest.approx(0, abs=1e-12)
    assert found.abs().max() > 1e-4


def test_steps_on_pairs_raise_margin_and_accuracy():
    policy = TinyPolicy()
    trainer = make_trainer(policy, DPO(), reference=TinyPolicy(), lr=3e-3)
    batch = plan_minibatches(pair_rows(4), num_epochs=12, aggregation="sequence_mean_token_sum")
    trainer.train(batch)
    metrics = merge_reports([trainer.train(plan_minibatches(pair_rows(4), aggregation="sequence_mean_token_sum"))])
    assert metrics["preference_accuracy"] == 1.0 and metrics["preference_margin"] > 0.2
    assert "approx_kl" not in metrics and "mismatch_mean" not in metrics


def test_a_pair_is_never_cut_by_steps_or_learners():
    rows = pair_rows(7)
    batch = plan_minibatches(rows, num_minibatches=3, aggregation="sequence_mean_token_sum")
    for minibatch in batch.minibatches:
        held = {rows[i].trajectory for i in minibatch.rows.tolist()}
        assert sorted(minibatch.rows.tolist()) == [i for i, row in enumerate(rows) if row.trajectory in held]
    for step in range(3):
        shares = [batch.shard(rank, 2).minibatches[step].rows.tolist() for rank in range(2)]
        pairs = [{rows[i].trajectory for i in share} for share in shares]
        assert pairs[0].isdisjoint(pairs[1])


def test_the_slopes_are_those_of_the_loss_by_finite_differences():
    point, h = torch.tensor([-3.0, -2.5, -2.8, -2.2], dtype=torch.float64), 1e-6

    def value(x: torch.Tensor) -> torch.Tensor:
        a, b, c, d = x.unsqueeze(1)
        return dpo_loss(a, b, c, d, beta=0.7, label_smoothing=0.2).loss[0]

    leaf = point.clone().requires_grad_()
    value(leaf).backward()
    assert leaf.grad is not None
    for i in range(4):
        step = torch.zeros(4, dtype=torch.float64)
        step[i] = h
        numeric = (value(point + step) - value(point - step)) / (2 * h)
        assert float(leaf.grad[i]) == pytest.approx(float(numeric), rel=1e-6)


def test_rows_without_pairs_are_refused():
    one = torch.ones(1, 1)
    with pytest.raises(ValueError, match="pair"):
        DPO()(LossInputs(-one, -one, one, one))


def test_weighted_cloning_counts_a_trajectory_as_often_as_its_weight():
    """A trajectory of weight 2 has the gradient of two equal ones of weight 1, up to the normaliser."""
    rows = random_rows(3)

    def gradient(weighted: list[Row], loss: object) -> torch.Tensor:
        policy = TinyPolicy()
        trainer = make_trainer(policy, loss)  # type: ignore[arg-type]
        batch = plan_minibatches(weighted, aggregation="sequence_mean_token_sum")
        trainer.accumulate(batch.rows, batch.minibatches[0], {}, Tally(), first=True)
        return len({r.trajectory for r in weighted}) * torch.cat(
            [g.flatten() for g in collect_gradients(list(policy.model.parameters()))]
        )

    plain = [with_advantages(row, 1.0, i) for i, row in enumerate(rows)]
    heavy = [with_advantages(rows[0], 2.0, 0), *plain[1:]]
    doubled = [*plain, with_advantages(rows[0], 1.0, 3)]
    found, expected = gradient(heavy, WeightedSft()), gradient(doubled, Sft())
    assert expected.abs().max() > 1
    # Llama's norms compute in float32, and the two normalisers round otherwise
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient(plain, WeightedSft()), gradient(plain, Sft()))


def test_cloning_never_looks_at_recorded_logprobs():
    """An expert's tokens have the logprob 0; nothing may come of it."""
    rows = random_rows(4)
    silent = [replace(row, logprobs=np.zeros_like(row.logprobs)) for row in rows]
    reports = []
    for version in (rows, silent):
        policy = TinyPolicy()
        trainer = make_trainer(policy, Sft())
        reports.append((merge_reports([trainer.train(plan_minibatches(version, num_epochs=2))]), policy))
    (one, first), (two, second) = reports
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert one.keys() == two.keys() and not any("mismatch" in name or "ratio" in name for name in one)
    assert "mismatch_mean" in merge_reports([make_trainer(TinyPolicy(), PPOClip()).train(plan_minibatches(rows))])
