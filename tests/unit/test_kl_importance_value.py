"""KL estimators by enumeration, engine correction, value loss, DPO. AL13, WS10."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tiny_policy import grad_of

from rllib_agentic.components import parse_settings
from rllib_agentic.errors import InputError
from rllib_agentic.learner.settings import LearnerSettings
from rllib_agentic.losses.importance import Importance, mismatch
from rllib_agentic.losses.kl import kl_estimate
from rllib_agentic.losses.preference import dpo_loss
from rllib_agentic.losses.value import value_loss


def policies():
    logits = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    return logits, logits.log_softmax(0), torch.full((3,), -math.log(3), dtype=torch.float64)


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"),
    [
        ("k1", 0.266217, [0.0, 0.0, 0.0]),
        ("k2", 0.247638, [0.282587, -0.14077, -0.141817]),
        ("k3", 0.266217, [0.331908, -0.088605, -0.243303]),
    ],
)
def test_kl_value_and_gradient_by_enumeration(estimator, value, gradient):
    # AL13: all three actions, weighted by their (fixed) probabilities
    logits, logprobs, reference = policies()
    expected = (logprobs.exp().detach() * kl_estimate(logprobs, reference, estimator)).sum()
    assert expected.item() == pytest.approx(value, abs=1e-6)
    (found,) = torch.autograd.grad(expected, logits)
    assert found.tolist() == pytest.approx(gradient, abs=1e-6)


def test_k1_in_the_reward_has_the_gradient_of_kl():
    logits, logprobs, reference = policies()
    (exact,) = torch.autograd.grad((logprobs.exp() * (logprobs - reference)).sum(), logits)
    logits, logprobs, reference = policies()
    penalty = kl_estimate(logprobs, reference, "k1").detach()
    (score,) = torch.autograd.grad((logprobs.exp().detach() * penalty * logprobs).sum(), logits)
    torch.testing.assert_close(score, exact)
    assert exact.tolist() == pytest.approx([0.282587, -0.14077, -0.141817], abs=1e-6)


def test_k3_as_a_loss_is_the_other_divergence():
    logits, logprobs, reference = policies()
    (forward,) = torch.autograd.grad((reference.exp() * (reference - logprobs)).sum(), logits)
    logits, logprobs, reference = policies()
    loss = (logprobs.exp().detach() * kl_estimate(logprobs, reference, "k3")).sum()
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], forward)


def test_k3_does_not_overflow():
    policy = torch.tensor([-300.0], requires_grad=True)
    found = kl_estimate(policy, torch.tensor([-0.1]), "k3")
    found.backward()
    assert found.isfinite().all() and grad_of(policy).isfinite().all()


def test_mismatch_shows_what_the_mean_hides():
    # WS10
    found = mismatch(np.array([0.0, 0.0, 0.3, -0.3]))
    assert found["mean"] == 0.0 and found["max"] == 0.3 and found["outside"] == 0.5
    assert found["mean_abs"] == pytest.approx(0.15) and found["p95"] == pytest.approx(0.3)
    ratios = [1, 1, math.exp(0.3), math.exp(-0.3)]
    assert found["ess"] == pytest.approx(sum(ratios) ** 2 / 4 / sum(r * r for r in ratios))
    assert found["kl"] == pytest.approx(sum(ratios) / 4 - 1)
    assert mismatch(np.zeros(0)) == {}
    assert mismatch(np.zeros(3))["ess"] == 1.0
    assert all(math.isfinite(v) for v in mismatch(np.array([500.0, -500.0])).values())


ROWS = [np.log([1.0, 4.0]), np.log([0.5]), np.log([0.25])]
TRAJECTORIES = [0, 0, 1]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [[1, 1], [1], [1]]),
        ({"mode": "token_truncate"}, [[1, 2], [0.5], [0.25]]),
        ({"mode": "token_truncate", "lower": 0.4}, [[1, 2], [0.5], [0.4]]),
        ({"mode": "sequence_truncate"}, [[2, 2], [2], [0.25]]),
        ({"mode": "sequence_truncate", "upper": 1.5}, [[1.5, 1.5], [1.5], [0.25]]),
        ({"mode": "token_mask"}, [[1, 0], [1], [0]]),
        ({"mode": "sequence_mask"}, [[0, 0], [0], [0]]),
        ({"mode": "sequence_mask", "lower": 0.5, "upper": 1.5}, [[1, 1], [1], [0]]),
    ],
)
def test_importance_modes(settings, expected):
    found = Importance.model_validate(settings).weights(ROWS, TRAJECTORIES)
    for row, wanted in zip(found, expected, strict=True):
        assert row.tolist() == pytest.approx(wanted)


def test_importance_of_equal_policies_changes_nothing():
    for mode in ("token_truncate", "sequence_truncate", "token_mask", "sequence_mask"):
        assert Importance(mode=mode).weights([np.zeros(3)], [0])[0].tolist() == [1, 1, 1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"importance": {"mode": "token_truncate"}}, "no effect without recompute_old_logprobs"),
        ({"importance": {"upper": 3}}, "no effect with mode 'off'"),
        ({"importance": {"mode": "token_mask", "lower": 3}}, "above upper"),
        ({"importance": {"mode": "tokens"}}, "importance.mode"),
        ({"schedule": "cosine"}, "needs decay_steps"),
        ({"decay_steps": 5}, "no effect with schedule 'constant'"),
        ({"kl": {"estimator": "k1"}}, "k1 in the loss has no gradient"),
        ({"constant": 5}, "no effect with aggregation"),
        ({"minibatches": 2, "minibatch_size": 4}, "not both"),
        ({"betas": [0.9, 1.0]}, "betas"),
        ({"kl": {"coeficient": 1}}, "Did you mean 'coefficient'"),
        ({"learning_rate": 1}, "unknown key"),
        ({"num_epochs": 0}, "num_epochs"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        parse_settings(LearnerSettings, settings, "learner")


@pytest.mark.parametrize("clip", [None, 0.2])
def test_value_loss_by_finite_differences(clip):
    torch.manual_seed(0)
    values = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    old, returns = torch.randn(2, 5, dtype=torch.float64), torch.randn(2, 5, dtype=torch.float64)
    mask = torch.rand(2, 5) < 0.6
    found = value_loss(values, old, returns, mask, clip)
    for b in range(2):
        for t in range(5):
            v, o, r = (x[b, t].item() for x in (values, old, returns))
            held = o + min(max(v - o, -(clip or 1e9)), clip or 1e9)
            wanted = max((v - r) ** 2, (held - r) ** 2) / 2 if mask[b, t] else 0.0
            assert found.loss[b, t].item() == pytest.approx(wanted)
    assert torch.autograd.gradcheck(lambda x: value_loss(x, old, returns, mask, clip).loss, values)


def test_value_loss_ignores_masked_garbage():
    nan = torch.tensor([[math.nan, 1.0]], requires_grad=True)
    found = value_loss(nan, torch.tensor([[math.inf, 1.0]]), torch.tensor([[0.0, 2.0]]), torch.tensor([[False, True]]))
    found.loss.sum().backward()
    assert found.loss.tolist() == [[0.0, 0.5]] and grad_of(nan).tolist() == [[0.0, -1.0]]


def test_dpo_pushes_the_chosen_up_and_the_rejected_down():
    chosen, rejected = (torch.tensor([x], dtype=torch.float64, requires_grad=True) for x in (-3.0, -2.0))
    reference = torch.tensor([-2.5], dtype=torch.float64)
    found = dpo_loss(chosen, rejected, reference, reference, beta=0.5)
    margin = 0.5 * ((-3.0 + 2.5) - (-2.0 + 2.5))
    assert found.margin.item() == margin
    assert found.loss.item() == pytest.approx(math.log(1 + math.exp(-margin)))
    found.loss.sum().backward()
    assert float(grad_of(chosen)) == pytest.approx(-0.5 / (1 + math.exp(margin)))
    assert float(grad_of(rejected)) == -float(grad_of(chosen))
