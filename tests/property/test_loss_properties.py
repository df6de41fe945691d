"""Whatever the batch: padding, row order, splits and masked garbage change neither loss nor gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_policy import grad_of

from rllib_agentic.learner.micro_batches import split_by_tokens
from rllib_agentic.losses.aggregation import Aggregation, row_weights
from rllib_agentic.losses.masked import masked_sum, masked_whiten
from rllib_agentic.losses.policy import CISPO, GSPO, SAPO, LossInputs, PolicyLoss, PPOClip, Reinforce

LOSSES = [Reinforce(), PPOClip(dual_clip=3.0), GSPO(clip_low=0.3, clip_high=0.3), CISPO(), SAPO()]
MODES: list[Aggregation] = ["token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean", "sum_over_constant"]


def loss_and_gradient(
    loss: PolicyLoss, weights: np.ndarray, new: torch.Tensor, rest: list[torch.Tensor], trajectory: torch.Tensor
) -> tuple[float, torch.Tensor]:
    new = new.clone().requires_grad_()
    old, advantages, mask = rest
    inputs = LossInputs(new, old, advantages, mask, trajectory)
    total = masked_sum(torch.from_numpy(weights)[:, None] * loss(inputs).loss, inputs.action_mask)
    total.backward()
    return total.item(), grad_of(new)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    rows=st.integers(1, 6),
    width=st.integers(1, 7),
    padding=st.integers(0, 3),
    loss=st.sampled_from(LOSSES),
    mode=st.sampled_from(MODES),
    garbage=st.sampled_from([math.nan, math.inf, -math.inf, 0.0]),
)
def test_batches_are_sets_of_tokens(seed, rows, width, padding, loss, mode, garbage):
    rng = np.random.default_rng(seed)
    mask = torch.from_numpy(rng.random((rows, width)) < 0.6)
    new, old, advantages = (torch.from_numpy(rng.normal(size=(rows, width))) for _ in range(3))
    trajectory = torch.from_numpy(np.sort(rng.integers(0, rows, rows)))
    weights = row_weights(mask.sum(1), trajectory, mode, 11)
    value, gradient = loss_and_gradient(loss, weights, new, [old, advantages, mask], trajectory)
    assert math.isfinite(value) and gradient.isfinite().all() and not gradient[~mask].any()

    def pad(x: torch.Tensor) -> torch.Tensor:
        filled = torch.where(mask, x, garbage)
        return torch.cat([filled, torch.full((rows, padding), garbage, dtype=x.dtype)], dim=1)

    order = torch.from_numpy(rng.permutation(rows))
    wide = torch.cat([mask, torch.zeros(rows, padding, dtype=torch.bool)], dim=1)
    moved = [pad(x)[order] for x in (new, old, advantages)]
    weights_moved = row_weights(mask.sum(1)[order], trajectory[order], mode, 11)
    again, gradient_moved = loss_and_gradient(
        loss, weights_moved, moved[0], [moved[1], moved[2], wide[order]], trajectory[order]
    )
    assert again == pytest.approx(value, rel=1e-9, abs=1e-12)
    torch.testing.assert_close(gradient_moved[:, :width], gradient[order], rtol=1e-9, atol=1e-12)

    first = trajectory == trajectory[0]  # trajectories whole, weights of the whole batch
    parts = []
    for part in (first, ~first):
        if part.any():
            rest = [x[part] for x in (old, advantages, mask)]
            parts.append(loss_and_gradient(loss, weights[part.numpy()], new[part], rest, trajectory[part])[0])
    assert sum(parts) == pytest.approx(value, rel=1e-9, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.booleans()), min_size=1, max_size=20))
def test_whitened_values_have_mean_0_and_deviation_1_or_are_all_0(entries):
    values = torch.tensor([v for v, _ in entries], dtype=torch.float64)
    mask = torch.tensor([m for _, m in entries])
    white = masked_whiten(values, mask)
    assert white.isfinite().all() and not white[~mask].any()
    if white.any():
        assert white[mask].mean().item() == pytest.approx(0, abs=1e-6)
        assert white[mask].std(correction=0).item() == pytest.approx(1, abs=1e-6)
    elif mask.any():
        spread = (values[mask].max() - values[mask].min()).item()
        assert spread <= 1e-12 * values[mask].abs().max().item()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 120))
def test_groups_hold_every_row_once_within_the_budget(lengths, budget):
    groups = split_by_tokens(lengths, budget)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[i] for i in group) <= budget
