"""Intervals: how far an evaluation can be trusted, with tasks as the independent units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

ByTask = Sequence[Sequence[float]]
"""One entry a task: the values of its samples, at least one."""

_CHUNK = 500


class Interval(NamedTuple):
    """Both ends, ``low <= high``."""

    low: float
    high: float


class Difference(NamedTuple):
    """A mean difference and its interval."""

    mean: float
    low: float
    high: float


def wilson_interval(successes: float, trials: float, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a success rate (Wilson 1927), without continuity correction.

    Args:
        successes: may be fractional where ``trials`` is an effective number.
        trials: independent trials, above 0.
        confidence: in (0, 1).

    Example:
        >>> low, high = wilson_interval(0, 50)
        >>> round(low, 3), round(high, 3)
        (0.0, 0.071)
    """
    if trials <= 0 or not 0 <= successes <= trials:
        raise ValueError(f"wilson_interval: {successes} successes of {trials} trials")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return Interval(low, high)


def success_interval(by_task: ByTask, confidence: float = 0.95) -> Interval:
    """The interval of a success rate over all samples.

    One sample a task: Wilson's interval. Several: samples of one task resemble each other, so they count for less than
    independent ones. Wilson's interval is then taken at the effective number of samples ``n / deff`` (Kish's design
    effect: the variance of the rate with tasks as units, over that of independent samples; kept between 1 and the
    samples a task). Where all samples agree nothing says how much they resemble each other, and only tasks count.

    Args:
        by_task: 0 or 1 a sample.
        confidence: in (0, 1).
    """
    sums, counts = _sums_and_counts(by_task)
    total, tasks = float(counts.sum()), len(counts)
    rate = float(sums.sum()) / total
    most = total / tasks
    if counts.max() == 1:
        effect = 1.0
    elif rate in (0.0, 1.0) or tasks == 1:
        effect = most
    else:
        residuals = sums - rate * counts
        clustered = tasks / (tasks - 1) * float((residuals**2).sum()) / total**2
        effect = min(max(clustered / (rate * (1 - rate) / total), 1.0), most)
    trials = total / effect
    return wilson_interval(min(rate * trials, trials), trials, confidence)


def mean_interval(by_task: ByTask, confidence: float = 0.95, *, resamples: int = 10_000, seed: int = 0) -> Interval:
    """The interval of a mean over all samples, by a percentile bootstrap that resamples whole tasks.

    Args:
        by_task: any finite numbers, such as returns.
        confidence: in (0, 1).
        resamples: bootstrap samples.
        seed: of the resampling; equal seeds give equal intervals.
    """
    sums, counts = _sums_and_counts(by_task)
    means = _bootstrap(sums, counts, resamples, seed)
    return _percentiles(means, confidence)


def paired_difference(
    before: ByTask, after: ByTask, confidence: float = 0.95, *, resamples: int = 10_000, seed: int = 0
) -> Difference:
    """How much the mean over tasks rose, with its interval: both sides saw the same tasks in the same order.

    A percentile bootstrap over the tasks' differences. Where all differences are equal, resampling shows no spread
    (0 % before, 100 % after); for values in [0, 1] the interval then comes from the two success intervals (Newcombe
    1998, method 10, without the term for correlation), so that few tasks never look like certainty.

    Args:
        before: the samples of each task before.
        after: of the same tasks after; the number of samples may differ.
        confidence: in (0, 1).
        resamples: bootstrap samples.
        seed: of the resampling.

    Example:
        >>> paired_difference([[0], [0], [1]], [[1], [1], [1]], seed=1)
        Difference(mean=0.6666666666666666, low=0.0, high=1.0)
    """
    if len(before) != len(after):
        raise ValueError(f"paired_difference: {len(before)} tasks before, {len(after)} after; expected the same tasks")
    old, new = (np.array([s / n for s, n in zip(*_sums_and_counts(side), strict=True)]) for side in (before, after))
    changes = new - old
    mean = float(changes.mean())
    values = [v for side in (before, after) for task in side for v in task]
    if np.ptp(changes) == 0 and min(values) >= 0 and max(values) <= 1:
        first, second = success_interval(before, confidence), success_interval(after, confidence)
        down = math.hypot(float(new.mean()) - second.low, first.high - float(old.mean()))
        up = math.hypot(second.high - float(new.mean()), float(old.mean()) - first.low)
        return Difference(mean, max(-1.0, mean - down), min(1.0, mean + up))
    low, high = _percentiles(_bootstrap(changes, np.ones(len(changes)), resamples, seed), confidence)
    return Difference(mean, low, high)


def _sums_and_counts(by_task: ByTask) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    if not by_task or not all(len(samples) for samples in by_task):
        raise ValueError("statistics: expected at least one task, and at least one sample of each")
    sums = np.array([math.fsum(samples) for samples in by_task])
    if not np.isfinite(sums).all():
        raise ValueError("statistics: a value is not finite")
    return sums, np.array([float(len(samples)) for samples in by_task])


def _bootstrap(
    sums: npt.NDArray[np.float64], counts: npt.NDArray[np.float64], resamples: int, seed: int
) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    means = []
    for start in range(0, resamples, _CHUNK):
        chosen = rng.integers(len(sums), size=(min(_CHUNK, resamples - start), len(sums)))
        means.append(sums[chosen].sum(axis=1) / counts[chosen].sum(axis=1))
    return np.concatenate(means)


def _percentiles(values: npt.NDArray[np.float64], confidence: float) -> Interval:
    low, high = np.quantile(values, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return Interval(float(low), float(high))
