"""The gradient of an optimizer step: against a dense loop in float64, and under every way to split the same rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_policy import TinyPolicy, grad_of, make_row, make_trainer, random_rows

from rllib_agentic.learner.gradients import collect_gradients
from rllib_agentic.learner.micro_batches import make_micro_batches
from rllib_agentic.learner.report import Tally, merge_reports
from rllib_agentic.learner.scoring import score_rows
from rllib_agentic.learner.train_batch import TrainBatch, plan_minibatches
from rllib_agentic.losses.policy import GSPO, PPOClip, Reinforce, Sft
from rllib_agentic.trajectory import LegalTokens, Row


def gradient(batch: TrainBatch, loss=None, temperature=1.0, step=0, policy=None, **settings) -> torch.Tensor:
    policy = policy or TinyPolicy()
    policy.zero_grad()
    trainer = make_trainer(policy, loss, temperature=temperature, **settings)
    columns = {"old_logprobs": {i: r.logprobs[r.action_mask] for i, r in enumerate(batch.rows)}}
    trainer.accumulate(batch.rows, batch.minibatches[step], columns, Tally(), first=True)
    return torch.cat([g.flatten() for g in collect_gradients(list(policy.model.parameters()))])


def dense_gradient(rows: list[Row], weights, temperature: float) -> torch.Tensor:
    """The plain loop: one row at a time, full logits, -inf at illegal tokens, the clipped surrogate by hand."""
    policy, total = TinyPolicy(), torch.zeros((), dtype=torch.float64)
    for row, weight in zip(rows, weights, strict=True):
        ids = torch.tensor(row.token_ids, dtype=torch.int64)
        logits = policy.model(ids[None]).logits[0] / temperature
        action = 0
        for t in range(len(ids)):
            if not row.action_mask[t]:
                continue
            scores = logits[t - 1]
            allowed = row.legal_tokens.at(action) if row.legal_tokens is not None else np.zeros(0, int)
            action += 1
            if len(allowed):
                keep = torch.zeros(len(scores), dtype=torch.bool)
                keep[torch.tensor(allowed, dtype=torch.int64)] = True
                scores = scores.masked_fill(~keep, -torch.inf)
            ratio = (scores.log_softmax(0)[ids[t]] - float(row.logprobs[t])).exp()
            advantage = float(row.advantages[t])
            total = total + weight * torch.maximum(-ratio * advantage, -ratio.clamp(0.8, 1.2) * advantage)
    total.backward()
    return torch.cat([p.grad.flatten() for p in policy.model.parameters()])


@pytest.mark.parametrize("legal", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_gradient_equals_the_plain_loop(legal, temperature):
    rows = random_rows(6, legal=legal)
    batch = plan_minibatches(rows)
    expected = dense_gradient(rows, batch.minibatches[0].weights, temperature)
    found = gradient(batch, temperature=temperature, max_tokens_per_micro_batch=64, max_logits=100)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss", [PPOClip(), GSPO(clip_low=0.9, clip_high=9.0)])
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean_token_mean"])
def test_gradient_does_not_depend_on_micro_batches(loss, aggregation):
    batch = plan_minibatches(random_rows(8, legal=True, rows_per_trajectory=2), aggregation=aggregation)
    whole = gradient(batch, loss, max_tokens_per_micro_batch=10_000)
    assert whole.abs().max() > 1e-3
    for budget in (120, 60, 1):
        torch.testing.assert_close(
            gradient(batch, loss, max_tokens_per_micro_batch=budget), whole, rtol=1e-9, atol=1e-12
        )


def test_gradient_does_not_depend_on_row_order():
    rows = random_rows(7)
    backwards = plan_minibatches(rows[::-1])
    torch.testing.assert_close(gradient(plan_minibatches(rows)), gradient(backwards), rtol=1e-9, atol=1e-12)


def test_gradient_does_not_depend_on_padding():
    rows = random_rows(4)
    longest = max(rows, key=len)
    longer = make_row([0] * 60 + [1], seed=9, advantages=np.zeros(61, np.float32), trajectory=99)
    batch = plan_minibatches(rows)
    padded = TrainBatch(
        (*rows, longer),
        (replace(batch.minibatches[0], rows=np.arange(5), weights=np.append(batch.minibatches[0].weights, 0.0)),),
    )
    assert len(longer) > len(longest)
    torch.testing.assert_close(
        gradient(padded, max_tokens_per_micro_batch=10_000), gradient(batch), rtol=1e-9, atol=1e-12
    )


def test_gradients_of_shares_add_up():
    batch = plan_minibatches(random_rows(9, rows_per_trajectory=2))
    parts = [gradient(batch.shard(rank, 3)) for rank in range(3)]
    torch.testing.assert_close(sum(parts), gradient(batch), rtol=1e-9, atol=1e-12)


def test_logits_of_observation_tokens_do_not_matter():
    # TM16, TM17: env 5, model 4, env 3, model 2, env 4
    mask = [0] * 5 + [1] * 4 + [0] * 3 + [1] * 2 + [0] * 4
    row = make_row(mask, seed=3)
    policy = TinyPolicy()
    trainer = make_trainer(policy, Reinforce())
    seen: list[torch.Tensor] = []
    original = policy.hidden

    def hidden(ids):
        states = original(ids).detach().requires_grad_()
        seen.append(states)
        return states

    policy.hidden = hidden  # type: ignore[method-assign]
    batch = plan_minibatches([row])
    old = {"old_logprobs": {0: row.logprobs[row.action_mask]}}
    trainer.accumulate(batch.rows, batch.minibatches[0], old, Tally(), first=True)
    touched = grad_of(seen[0]).abs().sum(-1)[0].nonzero().flatten().tolist()
    assert touched == [4, 5, 6, 7, 11, 12]  # the positions that predict the 6 model tokens, and no other


def test_shift_trains_the_first_token_of_every_turn():
    # TM16
    row = replace(make_row([0, 0, 1, 1, 0, 0, 1, 1]), token_ids=np.array([10, 11, 20, 21, 3, 4, 22, 2], np.int32))
    (batch,) = make_micro_batches([row], [0], [1.0], max_tokens=100)
    assert batch.token_ids[batch.action_mask].tolist() == [20, 21, 22, 2]
    assert (batch.action_mask[:, 1:].nonzero()[:, 1]).tolist() == [1, 2, 5, 6]


def test_scoring_matches_rows_scored_alone():
    # TM20: padding changes no position
    rows = random_rows(5, legal=True)
    trainer = make_trainer(TinyPolicy())
    together = score_rows(trainer._policy, rows, range(5), max_tokens=10_000)
    for i in range(5):
        alone = score_rows(trainer._policy, rows, [i], max_tokens=1)
        np.testing.assert_allclose(together[i], alone[i], atol=1e-12)


def test_forced_tokens_have_logprob_zero_and_no_gradient():
    row = make_row([0, 0, 1, 1], seed=1)
    forced = LegalTokens(np.array([0, 1, 2], np.int32), row.token_ids[2:])
    row = replace(row, legal_tokens=forced, logprobs=np.zeros(4, np.float32))
    trainer = make_trainer(TinyPolicy())
    assert score_rows(trainer._policy, [row], [0], max_tokens=9)[0].tolist() == [0.0, 0.0]
    assert gradient(plan_minibatches([row]), Reinforce(), entropy_coefficient=0.1).abs().max() == 0


def test_illegal_sample_is_refused():
    row = make_row([0, 0, 1], seed=1)
    other = (row.token_ids[2:] + 1) % 23
    row = replace(row, legal_tokens=LegalTokens(np.array([0, 1], np.int32), other.astype(np.int32)))
    with pytest.raises(ValueError, match="none of the 1 legal tokens"):
        make_micro_batches([row], [0], [1.0], max_tokens=9)


def test_ratio_is_one_at_the_first_step_and_clips_at_the_second():
    # AL28
    rows = random_rows(6)
    policy = TinyPolicy()
    one = make_trainer(policy, recompute_old_logprobs=True)
    first = merge_reports([one.train(plan_minibatches(rows))])
    assert first["ratio_mean"] == 1.0 and first["ratio_max"] == 1.0 and first["clip_frac"] == 0.0
    policy = TinyPolicy()
    two = make_trainer(policy, recompute_old_logprobs=True, lr=0.1)
    second = merge_reports([two.train(plan_minibatches(rows, num_epochs=2))])
    assert second["ratio_max"] > 1.2 and 0 < second["clip_frac"] < 1 and second["approx_kl"] > 0


def test_exactly_on_policy_rows_have_ratio_one_against_the_engine():
    # AL16: one temperature in sampling and scoring
    rows = random_rows(4, legal=True)
    policy = TinyPolicy()
    trainer = make_trainer(policy, temperature=0.5)
    own = score_rows(trainer._policy, rows, range(4), max_tokens=99)
    sampled = []
    for i, row in enumerate(rows):
        logprobs = np.zeros(len(row), np.float32)
        logprobs[row.action_mask] = own[i]
        sampled.append(replace(row, logprobs=logprobs))
    metrics = merge_reports([trainer.train(plan_minibatches(sampled))])
    assert metrics["ratio_max"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["mismatch_max"] < 1e-6


def test_metrics_do_not_depend_on_the_split():
    rows = random_rows(9, legal=True, rows_per_trajectory=2)
    batch = plan_minibatches(rows)
    whole = merge_reports([make_trainer(TinyPolicy(), max_tokens_per_micro_batch=9999).train(batch)])
    small = merge_reports([make_trainer(TinyPolicy(), max_tokens_per_micro_batch=50).train(batch)])
    shares = [make_trainer(TinyPolicy()).train(batch.shard(rank, 2)) for rank in range(2)]
    apart = merge_reports(shares)
    local = ("tokens_per_s", "micro_batches", "padding_frac", "grad_norm", "grad_norm_max")
    for name, value in whole.items():
        if name not in local:
            assert small[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name
            assert apart[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name
    assert whole["trained_tokens"] == sum(r.action_mask.sum() for r in rows)
    assert small["micro_batches"] > whole["micro_batches"] == 1


def test_a_gradient_that_is_not_finite_skips_the_step():
    rows = random_rows(3)
    policy = TinyPolicy()
    trainer = make_trainer(policy)
    before = [p.detach().clone() for p in policy.parameters()]
    batch = plan_minibatches(rows)
    broken = TrainBatch(batch.rows, (replace(batch.minibatches[0], weights=np.full(3, np.inf)),))
    metrics = merge_reports([trainer.train(broken)])
    assert metrics["skipped_steps"] == 1 and metrics["optimizer_steps"] == 0 and trainer.optimizer_steps == 0
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


def test_gradient_norm_is_clipped_globally():
    rows = random_rows(3)
    policy = TinyPolicy()
    trainer = make_trainer(policy, Sft(), grad_clip=0.5)
    seen: list[float] = []
    step = trainer._optimizer.step

    def watched() -> None:
        seen.append(torch.cat([grad_of(p).flatten() for p in trainer._parameters]).norm().item())
        step()

    trainer._optimizer.step = watched  # type: ignore[assignment, method-assign]
    metrics = merge_reports([trainer.train(plan_minibatches(rows))])
    assert metrics["grad_norm"] > 0.5
    assert seen[0] == pytest.approx(0.5)


def test_divergence_from_the_reference_is_zero_at_the_start_and_pulls_later():
    rows = random_rows(4)
    policy, reference = TinyPolicy(), TinyPolicy()
    kl = {"coefficient": 0.5, "estimator": "k3"}
    trainer = make_trainer(policy, reference=reference, kl=kl, lr=0.05)
    assert merge_reports([trainer.train(plan_minibatches(rows))])["kl_to_reference"] == pytest.approx(0, abs=1e-12)
    later = merge_reports([trainer.train(plan_minibatches(rows))])
    assert later["kl_to_reference"] > 1e-4
    free = make_trainer(TinyPolicy(), reference=reference, kl={"coefficient": 1e-12, "estimator": "k3"}, lr=0.05)
    free.train(plan_minibatches(rows))
    assert merge_reports([free.train(plan_minibatches(rows))])["kl_to_reference"] == pytest.approx(
        later["kl_to_reference"], rel=1e-6
    )  # one step from the reference the pull is still 0 ...
    bound = merge_reports([trainer.train(plan_minibatches(rows))])["kl_to_reference"]
    assert bound < merge_reports([free.train(plan_minibatches(rows))])["kl_to_reference"]  # ... then it holds back


def test_sequence_loss_joins_rows_of_one_trajectory():
    """Two rows of one trajectory in separate micro-batches: GSPO's ratio is that of the whole trajectory."""
    rows = [
        replace(row, advantages=row.action_mask * np.float32([1.5, -0.5][row.trajectory]))
        for row in random_rows(4, rows_per_trajectory=2)
    ]
    policy, total = TinyPolicy(), torch.zeros((), dtype=torch.float64)
    for number, advantage in ((0, 1.5), (1, -0.5)):
        log_ratios = []
        for row in [r for r in rows if r.trajectory == number]:
            ids = torch.tensor(row.token_ids, dtype=torch.int64)
            scores = policy.model(ids[None]).logits[0, :-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
            log_ratios.append(scores[torch.tensor(row.action_mask[1:])] - torch.tensor(row.logprobs[row.action_mask]))
        total = total - 0.5 * torch.cat(log_ratios).mean().exp() * advantage
    total.backward()
    expected = torch.cat([p.grad.flatten() for p in policy.model.parameters()])
    batch = plan_minibatches(rows, aggregation="sequence_mean_token_mean")
    for budget in (1, 10_000):
        found = gradient(batch, GSPO(clip_low=1.0, clip_high=1e6), max_tokens_per_micro_batch=budget)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
