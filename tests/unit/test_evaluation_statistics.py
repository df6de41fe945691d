"""Intervals and @k against scipy, enumeration and simulation."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from rllib_agentic.evaluation import (
    Interval,
    avg_at_k,
    mean_interval,
    mean_pass_at_k,
    paired_difference,
    pass_at_k,
    success_interval,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("successes", "trials"), [(s, n) for n in (1, 2, 7, 100, 1000) for s in {0, 1, n // 3, n - 1, n}]
)
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_wilson_equals_scipy(successes: int, trials: int, confidence: float) -> None:
    expected = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    assert wilson_interval(successes, trials, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_one_sample_a_task_is_wilson() -> None:
    by_task = [[1.0]] * 30 + [[0.0]] * 20
    assert success_interval(by_task) == pytest.approx(wilson_interval(30, 50))


def test_copies_of_a_sample_add_nothing() -> None:
    """Each task answered four times alike is as good as once."""
    once = success_interval([[1]] * 30 + [[0]] * 20)
    four_times = success_interval([[1] * 4] * 30 + [[0] * 4] * 20)
    assert four_times == pytest.approx(once, abs=0.005)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_unanimous_samples_are_as_many_as_their_tasks(rate: float) -> None:
    interval = success_interval([[rate] * 8] * 25)
    assert interval == pytest.approx(wilson_interval(25 * rate, 25))
    assert interval.low < interval.high


def test_one_task_says_little() -> None:
    low, high = success_interval([[1, 0, 1, 0]])
    assert low < 0.15 and high > 0.85


def test_coverage_of_clustered_success_rates() -> None:
    """Tasks of different difficulty, four samples each: about 95 % of the intervals hold the true rate."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        difficulty = rng.beta(0.4, 1.2, size=40)  # mean 0.25
        by_task = (rng.random((40, 4)) < difficulty[:, None]).astype(float)
        low, high = success_interval(by_task.tolist())
        hits += low <= 0.25 <= high
    naive = 0
    rng = np.random.default_rng(0)
    for _ in range(400):
        difficulty = rng.beta(0.4, 1.2, size=40)
        total = int((rng.random((40, 4)) < difficulty[:, None]).sum())
        low, high = wilson_interval(total, 160)
        naive += low <= 0.25 <= high
    assert 0.93 <= hits / 400 <= 0.98
    assert naive / 400 < 0.9


def test_mean_interval_equals_scipys_bootstrap() -> None:
    values = np.random.default_rng(1).normal(2.0, 1.0, size=60)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    got = mean_interval([[v] for v in values], resamples=20_000)
    assert got == pytest.approx((expected.low, expected.high), abs=0.01)


def test_mean_interval_by_enumeration_of_all_resamples() -> None:
    by_task = [[0.0, 0.0], [1.0], [5.0, 3.0, 4.0]]
    sums, counts = [0.0, 1.0, 12.0], [2, 1, 3]
    means = [sum(sums[i] for i in draw) / sum(counts[i] for i in draw) for draw in product(range(3), repeat=3)]
    expected = np.quantile(means, [0.2, 0.8], method="inverted_cdf")
    assert mean_interval(by_task, confidence=0.6, seed=4) == pytest.approx(expected)


def test_intervals_repeat_with_their_seed() -> None:
    by_task = [[float(i % 7)] for i in range(40)]
    assert mean_interval(by_task, seed=3) == mean_interval(by_task, seed=3)
    assert mean_interval(by_task, seed=3) != mean_interval(by_task, seed=4)
    assert isinstance(mean_interval(by_task), Interval)


def test_pairing_sees_what_two_intervals_do_not() -> None:
    """Tasks differ a lot, and each improves a little."""
    rng = np.random.default_rng(0)
    before = rng.normal(0, 10, size=50)
    after = before + 1 + rng.normal(0, 0.5, size=50)
    mean, low, high = paired_difference([[v] for v in before], [[v] for v in after])
    assert mean == pytest.approx((after - before).mean())
    assert 0.7 < low < 1 < high < 1.3
    unpaired = mean_interval([[v] for v in before])
    assert unpaired.high - unpaired.low > 4
    expected = stats.bootstrap((after - before,), np.mean, method="percentile", rng=rng).confidence_interval
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.02)


def test_from_nothing_to_everything_is_not_certainty() -> None:
    mean, low, high = paired_difference([[0.0]] * 20, [[1.0]] * 20)
    assert (mean, high) == (1.0, 1.0)
    width = wilson_interval(0, 20).high
    assert low == pytest.approx(1 - np.hypot(width, width))


def test_no_change_is_not_certainty_either() -> None:
    mean, low, high = paired_difference([[1.0], [0.0]] * 10, [[1.0], [0.0]] * 10)
    assert mean == 0.0
    assert low < -0.1 and high > 0.1


def test_pairs_must_match() -> None:
    with pytest.raises(ValueError, match="2 tasks before, 1 after"):
        paired_difference([[0], [1]], [[1]])


@pytest.mark.parametrize("bad", [[], [[1.0], []], [[float("nan")]]])
def test_nothing_and_nan_are_refused(bad: list[list[float]]) -> None:
    for function in (success_interval, mean_interval):
        with pytest.raises(ValueError, match="statistics"):
            function(bad)


@pytest.mark.parametrize("samples", [1, 2, 5, 6])
def test_pass_at_k_by_enumeration(samples: int) -> None:
    for successes in range(samples + 1):
        outcomes = [True] * successes + [False] * (samples - successes)
        for k in range(1, samples + 1):
            sets = list(combinations(outcomes, k))
            assert pass_at_k(samples, successes, k) == pytest.approx(sum(map(any, sets)) / len(sets))


def test_pass_at_k_is_exact_for_many_samples() -> None:
    assert pass_at_k(10_000, 1, 100) == pytest.approx(0.01)


def test_means_over_tasks() -> None:
    by_task = [[True, False, False, False], [True, True, True, True], [False] * 4]
    assert mean_pass_at_k(by_task, 2) == pytest.approx((0.5 + 1 + 0) / 3)
    assert mean_pass_at_k(by_task, 1) == pytest.approx(avg_at_k(by_task, 1)) == pytest.approx(1.25 / 3)
    with pytest.raises(ValueError, match="fewest samples has 4"):
        avg_at_k(by_task, 5)
    with pytest.raises(ValueError, match="pass_at_k"):
        pass_at_k(4, 2, 5)
