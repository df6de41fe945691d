"""Masks select, and row weights make one number of token losses. AL05, AL06, AL14, AL15, AL23, AL24, AL27."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tiny_policy import grad_of

from rllib_agentic.losses.aggregation import Aggregation, row_weights
from rllib_agentic.losses.masked import as_mask, masked_mean, masked_sum, masked_whiten
from rllib_agentic.losses.policy import LossInputs

MODES: tuple[Aggregation, ...] = (
    "token_mean",
    "sequence_mean_token_sum",
    "sequence_mean_token_mean",
    "sum_over_constant",
)


def test_masked_minus_infinity_reaches_neither_sum_nor_gradient():
    # AL06
    logprobs = torch.tensor([-0.5, -math.inf, -1.0], requires_grad=True)
    total = masked_sum(logprobs, torch.tensor([True, False, True]))
    total.backward()
    assert total == -1.5 and grad_of(logprobs).tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_masked_mean_ignores_anything_masked(bad):
    values = torch.tensor([[1.0, bad], [bad, bad]], requires_grad=True)
    mask = torch.tensor([[True, False], [False, False]])
    means = masked_mean(values, mask, dim=1)
    means.sum().backward()
    assert means.tolist() == [1.0, 0.0] and grad_of(values).tolist() == [[1.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("mode", MODES)
def test_everything_masked_is_zero(mode):
    # AL05
    per_token = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    mask = torch.zeros(2, 2, dtype=torch.bool)
    weights = torch.from_numpy(row_weights(mask.sum(1), [0, 1], mode, 8))
    loss = masked_sum(weights[:, None] * per_token, mask)
    loss.backward()
    assert loss == 0 and grad_of(per_token).abs().max() == 0


def test_whitening_over_selected_values():
    # AL27
    mask = torch.tensor([True, True, False, False])
    assert masked_whiten(torch.tensor([1.0, 3.0, 100.0, -100.0]), mask).tolist() == [-1.0, 1.0, 0.0, 0.0]
    assert masked_whiten(torch.tensor([5.0, 9.0]), torch.tensor([True, False])).tolist() == [0.0, 0.0]
    assert masked_whiten(torch.tensor([5.0, math.nan]), torch.tensor([True, False])).tolist() == [0.0, 0.0]
    assert masked_whiten(torch.tensor([5.0]), torch.tensor([False])).tolist() == [0.0]


def test_whitening_of_rounding_noise_is_zero():
    noisy = torch.tensor([0.1 + 0.2, 0.3, 0.3], dtype=torch.float64)
    assert masked_whiten(noisy, torch.ones(3, dtype=torch.bool)).tolist() == [0.0, 0.0, 0.0]
    small = torch.tensor([1e-12, 3e-12], dtype=torch.float64)
    assert masked_whiten(small, torch.ones(2, dtype=torch.bool)).tolist() == pytest.approx([-1, 1])


@pytest.mark.parametrize("values", [[[0.5, -1.2, 0.0]], [[1.0, 2.0, 0.0]], [[math.nan, 1.0, 0.0]], [[-1.0, 0.0, 1.0]]])
def test_advantages_are_no_mask(values):
    # AL24
    zeros = torch.zeros(1, 3)
    with pytest.raises(ValueError, match="action mask"):
        LossInputs(zeros, zeros, zeros, torch.tensor(values))


def test_a_mask_of_zeros_and_ones_is_accepted():
    assert as_mask(torch.tensor([0, 1])).tolist() == [False, True]
    assert as_mask(torch.tensor([0.0, 1.0])).tolist() == [False, True]


def test_shapes_must_agree():
    zeros = torch.zeros(1, 3)
    with pytest.raises(ValueError, match="advantages"):
        LossInputs(zeros, zeros, torch.zeros(1, 2), torch.ones(1, 3, dtype=torch.bool))


def test_the_four_modes():
    # AL14
    sums = np.array([1 + 2 + 3 + 4, 10])
    found = [float(row_weights([4, 1], [0, 1], mode, 8) @ sums) for mode in MODES]
    assert found == [4.0, 10.0, 6.25, 1.25]


def test_a_split_keeps_the_weights_of_the_whole():
    # AL15
    weights = row_weights([4, 1], [0, 1], "token_mean")
    assert weights[0] * 10 + weights[1] * 10 == pytest.approx(4.0)


def test_rows_of_one_trajectory_are_one_sequence():
    # trajectory 7 has two rows with 3 and 1 tokens, trajectory 2 one row with 4
    assert row_weights([3, 1, 4], [7, 7, 2], "sequence_mean_token_mean").tolist() == [1 / 8, 1 / 8, 1 / 8]
    assert row_weights([3, 1, 4], [7, 7, 2], "sequence_mean_token_sum").tolist() == [1 / 2, 1 / 2, 1 / 2]
    assert row_weights([3, 1, 4], [7, 7, 2], "sum_over_constant", 10).tolist() == [1 / 20, 1 / 20, 1 / 20]


@pytest.mark.parametrize("mode", MODES)
def test_empty_rows_change_nothing(mode):
    weights = row_weights([4, 0, 1], [0, 1, 2], mode, 8)
    assert weights[1] == 0
    np.testing.assert_allclose(weights[[0, 2]], row_weights([4, 1], [0, 2], mode, 8))


@pytest.mark.parametrize("constant", [None, 0, -1, math.nan])
def test_the_constant_is_checked(constant):
    with pytest.raises(ValueError, match="positive constant"):
        row_weights([1], [0], "sum_over_constant", constant)


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="unknown mode"):
        row_weights([1], [0], "mean")  # type: ignore[arg-type]
