"""Drawing tokens: the right distribution, the right logprob, whatever else is in the batch."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, kstest

from rllib_agentic.engines.sampling import Draw, draw, uniforms

LOGITS = torch.log(torch.tensor([0.4, 0.3, 0.2, 0.1]))


def probabilities(how: Draw) -> dict[int, float]:
    """What :func:`draw` says each drawn token's probability is, over many seeds."""
    count = 400
    drawn = draw(LOGITS.expand(count, -1), [how._replace(seed=s) for s in range(count)])
    return {int(i): float(np.exp(lp)) for i, lp in zip(drawn.ids, drawn.logprobs, strict=True)}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Draw(1.0, 0, 0), {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.1}),
        # temperature 0.5 squares: 16, 9, 4, 1 thirtieths
        (Draw(0.5, 0, 0), {0: 16 / 30, 1: 9 / 30, 2: 4 / 30, 3: 1 / 30}),
        (Draw(1.0, 0, 0, legal=np.array([1, 3], np.int32)), {1: 0.75, 3: 0.25}),
        (Draw(0.5, 0, 0, legal=np.array([1, 3], np.int32)), {1: 0.9, 3: 0.1}),
        (Draw(1.0, 0, 0, top_k=2), {0: 4 / 7, 1: 3 / 7}),
        (Draw(1.0, 0, 0, top_p=0.69), {0: 4 / 7, 1: 3 / 7}),  # 0.4 + 0.3 reaches it
        (Draw(1.0, 0, 0, top_p=0.75), {0: 4 / 9, 1: 3 / 9, 2: 2 / 9}),
        (Draw(1.0, 0, 0, top_p=1e-6), {0: 1.0}),  # the best token always stays
        # of the two best, 4/7 alone reaches one half
        (Draw(1.0, 0, 0, top_p=0.5, top_k=2), {0: 1.0}),
        (Draw(1.0, 0, 0, top_k=1, legal=np.array([1, 3], np.int32)), {1: 1.0}),
        (Draw(0.0, 0, 0), {0: 0.4}),  # greedy: the logprob is temperature 1's
        (Draw(0.0, 0, 0, top_p=0.1, top_k=1), {0: 0.4}),
        (Draw(0.0, 0, 0, legal=np.array([1, 3], np.int32)), {1: 0.75}),
    ],
)
def test_logprobs_are_those_of_the_distribution_that_was_sampled(how, expected):
    assert probabilities(how) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "how", [Draw(1.0, 0, 0), Draw(0.7, 0, 0), Draw(1.0, 0, 0, legal=np.array([0, 2, 3], np.int32))]
)
def test_frequencies_match_the_distribution(how):
    count = 20_000
    drawn = draw(LOGITS.expand(count, -1), [how._replace(seed=s, position=s % 7) for s in range(count)])
    weights = (LOGITS.double() / how.temperature).exp().numpy()
    legal = np.arange(4) if how.legal is None else how.legal
    expected = weights[legal] / weights[legal].sum() * count
    observed = np.bincount(drawn.ids, minlength=4)
    assert observed.sum() == observed[legal].sum()
    assert chisquare(observed[legal], expected).pvalue > 1e-3


def test_noise_is_uniform_over_seeds_and_over_positions():
    assert kstest(uniforms(range(20_000), [0] * 20_000), "uniform").pvalue > 1e-3
    assert kstest(uniforms([7] * 20_000, range(20_000)), "uniform").pvalue > 1e-3


def test_noise_of_neighbouring_seeds_is_no_shifted_copy():
    a, b = uniforms([1] * 4000, range(4000)), uniforms([2] * 4000, range(4000))
    assert len(np.intersect1d(a, b)) == 0
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.06
    assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 0.06


def test_noise_takes_any_integer_as_seed():
    noise = uniforms([-1, 2**64 - 1, 2**70 + 5, 5], [0, 0, 0, 0])
    assert ((noise >= 0) & (noise < 1)).all()
    assert noise[0] == noise[1] != noise[3] == noise[2]


def test_noise_matches_splitmix64_by_hand():
    # Reference in Python integers: the output number `position` of the stream that starts at the mixed seed.
    mask = 2**64 - 1

    def mix(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        return z ^ (z >> 31)

    golden = 0x9E3779B97F4A7C15
    assert mix(golden) == 0xE220A8397B1DCDAF  # the published first output for seed 0
    for seed, position in [(0, 0), (1, 0), (123456789, 41)]:
        state = mix(seed + golden & mask)
        expected = (mix(state + (position + 1) * golden & mask) >> 16) / 2**48
        assert uniforms([seed], [position])[0] == expected


def test_a_row_does_not_depend_on_its_batch():
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 50)).astype(np.float32))
    draws = [
        Draw(1.0, 11, 0),
        Draw(0.0, 12, 1),
        Draw(0.7, 13, 2, legal=np.array([4, 9, 30], np.int32)),
        Draw(1.0, 14, 3, top_p=0.5),
        Draw(1.3, 15, 4, top_k=3),
        Draw(1.0, 16, 5, legal=np.array([7], np.int32)),
    ]
    together = draw(logits, draws)
    for r, how in enumerate(draws):
        alone = draw(logits[r : r + 1], [how])
        assert alone.ids[0] == together.ids[r]
        assert alone.logprobs[0] == pytest.approx(together.logprobs[r], abs=1e-6)
    assert together.logprobs[5] == 0.0


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_logits_that_are_not_finite_give_nan_for_their_row_only(poison, temperature):  # AL25
    logits = torch.zeros(3, 5)
    logits[1, 2] = poison
    drawn = draw(logits, [Draw(temperature, 0, 0)] * 3)
    assert np.isnan(drawn.logprobs).tolist() == [False, True, False]
    masked = draw(logits, [Draw(temperature, 0, 0, legal=np.array([1, 2], np.int32))] * 3)
    assert np.isnan(masked.logprobs).tolist() == [False, True, False]


def test_tokens_with_logit_minus_infinity_are_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(500, -1)
    drawn = draw(logits, [Draw(1.0, s, 0) for s in range(500)])
    assert set(drawn.ids) == {1, 3}
    assert np.allclose(drawn.logprobs, math.log(0.5))
