"""Policy losses: brute force a token at a time, finite differences, and hand-worked numbers."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_policy import grad_of

from rllib_agentic.errors import InputError
from rllib_agentic.losses.policy import (
    CISPO,
    GSPO,
    POLICY_LOSSES,
    SAPO,
    LossInputs,
    PPOClip,
    Reinforce,
    Sft,
    WeightedSft,
)

ALL = [
    Reinforce(),
    Sft(),
    WeightedSft(),
    PPOClip(),
    PPOClip(clip_high=0.28, dual_clip=3.0),
    GSPO(clip_low=0.1, clip_high=0.2),
    CISPO(),
    SAPO(),
]


def problem(seed=0, scale=0.6):
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(4, 6, generator=generator, dtype=torch.float64) - 0.2
    new = old + scale * torch.randn(4, 6, generator=generator, dtype=torch.float64)
    advantages = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    mask = torch.rand(4, 6, generator=generator) < 0.6
    return new, old, advantages, mask, torch.tensor([0, 1, 0, 2])


def by_hand(loss, new, old, advantage, sequence_ratio):
    """One token's loss with plain floats."""
    ratio = math.exp(new - old)
    if isinstance(loss, GSPO):
        ratio = sequence_ratio
    if isinstance(loss, Reinforce | WeightedSft):
        return -advantage * new
    if isinstance(loss, Sft):
        return -new
    if isinstance(loss, PPOClip):
        held = min(max(ratio, 1 - loss.clip_low), 1 + loss.clip_high)
        value = -min(ratio * advantage, held * advantage)
        if loss.dual_clip is not None and advantage < 0:
            value = min(value, -loss.dual_clip * advantage)
        return value
    if isinstance(loss, CISPO):
        return -min(max(ratio, 0.0), 5.0) * advantage * new
    tau = loss.tau_positive if advantage > 0 else loss.tau_negative
    return -advantage * 4 / tau / (1 + math.exp(-tau * (ratio - 1)))


@pytest.mark.parametrize("loss", ALL, ids=repr)
@pytest.mark.parametrize("scale", [0.3, 2.0])
def test_against_brute_force(loss, scale):
    new, old, advantages, mask, trajectory = problem(scale=scale)
    found = loss(LossInputs(new, old, advantages, mask, trajectory)).loss
    for b in range(4):
        rows = trajectory == trajectory[b]
        ratio = math.exp(float((new - old)[rows][mask[rows]].mean()))
        for t in range(6):
            expected = by_hand(loss, float(new[b, t]), float(old[b, t]), float(advantages[b, t]), ratio)
            assert found[b, t].item() == pytest.approx(expected if mask[b, t] else 0.0, abs=1e-12)


@pytest.mark.parametrize("loss", [Reinforce(), Sft(), PPOClip(), PPOClip(dual_clip=3.0), SAPO()], ids=repr)
def test_gradient_by_finite_differences(loss):
    new, old, advantages, mask, trajectory = problem(seed=1)
    assert torch.autograd.gradcheck(
        lambda x: loss(LossInputs(x, old, advantages, mask, trajectory)).loss, new.requires_grad_()
    )


def test_gspo_gradient_is_that_of_the_sequence_objective():
    new, old, _, mask, trajectory = problem(seed=2)
    advantages = torch.tensor([1.0, -2.0, 1.0, 0.5], dtype=torch.float64)[:, None].expand(4, 6)
    loss = GSPO(clip_low=0.15, clip_high=0.15)
    tokens = torch.tensor([float(mask[trajectory == n].sum()) for n in trajectory], dtype=torch.float64)
    weights = 1 / (3 * tokens)[:, None]

    def value(x):
        return (weights * loss(LossInputs(x, old, advantages, mask, trajectory)).loss).sum()

    new.requires_grad_()
    (gradient,) = torch.autograd.grad(value(new), new)
    step = 1e-6
    for b in range(4):
        for t in range(6):
            shift = torch.zeros_like(new)
            shift[b, t] = step
            numeric = (value(new + shift) - value(new - shift)).item() / (2 * step)
            assert float(gradient[b, t]) == pytest.approx(numeric, abs=1e-8)
    assert gradient.abs().max() > 0


def test_cispo_keeps_the_gradient_of_every_token():
    new, old, advantages, mask, _ = problem(seed=3, scale=3.0)
    new.requires_grad_()
    CISPO()(LossInputs(new, old, advantages, mask)).loss.sum().backward()
    expected = -(new - old).exp().clamp(max=5) * advantages
    torch.testing.assert_close(grad_of(new), torch.where(mask, expected.detach(), 0.0))


def test_sapo_equals_the_plain_gradient_on_policy():
    old, advantages = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[2.0, -3.0]], dtype=torch.float64)
    new = old.clone().requires_grad_()
    SAPO()(LossInputs(new, old, advantages, torch.ones(1, 2))).loss.sum().backward()
    assert grad_of(new).tolist() == [[-2.0, 3.0]]


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_ratios_never_overflow(loss):
    # AL26
    new = torch.tensor([[-0.1, -200.0, -0.5, -0.1]], requires_grad=True)
    old = torch.tensor([[-0.1, -0.5, -200.0, -1e30]])
    for sign in (1.0, -1.0):
        found = loss(LossInputs(new, old, torch.full((1, 4), sign), torch.ones(1, 4)))
        (gradient,) = torch.autograd.grad(found.loss.sum(), new)
        assert found.loss.isfinite().all() and gradient.isfinite().all()
        assert all(s.float().isfinite().all() for s in found.stats.values())


def test_masked_tokens_stay_out_of_sequence_ratios():
    # AL26: the masked token has a nonsense logprob of 1
    inputs = LossInputs(
        torch.tensor([[-0.1, 1.0]]), torch.tensor([[-0.1, 0.0]]), torch.ones(1, 2), torch.tensor([[1, 0]])
    )
    assert inputs.mean_log_ratio().exp().tolist() == [1.0]
    assert GSPO()(inputs).loss.tolist() == [[-1.0, 0.0]]


@pytest.mark.parametrize("loss", ALL, ids=repr)
@pytest.mark.parametrize("garbage", [math.nan, -math.inf, math.inf, 1e30])
def test_masked_garbage_changes_nothing(loss, garbage):
    new, old, advantages, mask, trajectory = problem(seed=4)
    clean_new = new.clone().requires_grad_()
    clean = loss(LossInputs(clean_new, old, advantages, mask, trajectory)).loss
    clean.sum().backward()
    dirty_new = torch.where(mask, new, garbage).requires_grad_()
    dirty_old, dirty_advantages = torch.where(mask, old, garbage), torch.where(mask, advantages, garbage)
    dirty = loss(LossInputs(dirty_new, dirty_old, dirty_advantages, mask, trajectory)).loss
    dirty.sum().backward()
    assert torch.equal(clean, dirty) and torch.equal(grad_of(clean_new), grad_of(dirty_new))


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_everything_masked_has_zero_loss_and_gradient(loss):
    new = torch.randn(2, 3, requires_grad=True)
    loss(LossInputs(new, torch.randn(2, 3), torch.randn(2, 3), torch.zeros(2, 3))).loss.sum().backward()
    assert grad_of(new).abs().max() == 0


def test_clipping_is_counted_where_it_stops_the_gradient():
    ratios = torch.tensor([[1.5, 1.5, 0.5, 0.5, 1.0]])
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0, 1.0]])
    new = ratios.log().requires_grad_()
    found = PPOClip()(LossInputs(new, torch.zeros(1, 5), advantages, torch.ones(1, 5)))
    found.loss.sum().backward()
    assert found.stats["clipped"].int().tolist() == [[1, 0, 0, 1, 0]]
    assert grad_of(new).eq(0).int().tolist() == [[1, 0, 0, 1, 0]]


def test_dual_clip_bounds_the_loss_of_negative_advantages():
    inputs = LossInputs(torch.tensor([[10.0]]).log(), torch.zeros(1, 1), -torch.ones(1, 1), torch.ones(1, 1))
    assert PPOClip()(inputs).loss.tolist() == [[pytest.approx(10.0)]]
    assert PPOClip(dual_clip=3.0)(inputs).loss.tolist() == [[3.0]]


def test_the_family_reads_yaml():
    assert POLICY_LOSSES.parse({"type": "ppo_clip", "clip_high": 0.28}) == PPOClip(clip_high=0.28)
    assert sorted(POLICY_LOSSES) == [
        "cispo", "dpo", "gspo", "ppo_clip", "reinforce", "sapo", "sft", "weighted_sft",
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"loss\.clip_hihg: unknown key\. Did you mean 'clip_high'"):
        POLICY_LOSSES.parse({"type": "ppo_clip", "clip_hihg": 0.28})
    with pytest.raises(InputError, match="clip_low"):
        POLICY_LOSSES.parse({"type": "ppo_clip", "clip_low": 2.0})
