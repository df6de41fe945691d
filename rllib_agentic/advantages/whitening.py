"""Whitening: mean 0 and standard deviation 1 over chosen values, also where they lie on several machines."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

EPSILON = 1e-8
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean, sum of squared deviations, and range of a set of numbers.

    Moments of parts merge into those of the whole (Chan et al. 1979), so several learners whiten as one does: each
    makes the moments of its share, all are merged, all whiten with the result.

    Example:
        >>> moments_of(np.array([1.0, 3.0])).merge(moments_of(np.array([5.0]))) == moments_of(np.array([1.0, 3.0, 5.0]))
        True
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    @property
    def std(self) -> float:
        """The population standard deviation (divisor n); 0 for no values."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0

    @property
    def is_flat(self) -> bool:
        """Whether there are fewer than two values, or all are equal up to float noise."""
        return self.count < 2 or self.high - self.low <= TOLERANCE * max(abs(self.low), abs(self.high))

    def merge(self, other: Moments) -> Moments:
        """The moments of both sets together."""
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        shift = other.mean - self.mean
        return Moments(
            count=count,
            mean=self.mean + shift * other.count / count,
            squares=self.squares + other.squares + shift * shift * self.count * other.count / count,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
        )


def moments_of(values: npt.ArrayLike, mask: npt.NDArray[np.bool_] | None = None) -> Moments:
    """The moments of the selected values; sums are exactly rounded, so their order does not matter."""
    array = np.asarray(values, np.float64)
    chosen = array.reshape(-1) if mask is None else array[mask]
    if not chosen.size:
        return Moments()
    mean = _exact_sum(chosen) / chosen.size
    return Moments(chosen.size, mean, _exact_sum((chosen - mean) ** 2), float(chosen.min()), float(chosen.max()))


def whiten(
    values: npt.ArrayLike, mask: npt.NDArray[np.bool_] | None = None, moments: Moments | None = None
) -> npt.NDArray[np.float64]:
    """``(v - mean) / (std + 1e-8)`` where the mask is true, 0 elsewhere; std is the population's.

    Args:
        values: any shape. What stands outside the mask is never read.
        mask: bool, same shape; None for all.
        moments: those to whiten with; None for those of the selected values.

    Returns:
        float64, the same shape. All zeros where the moments are flat: one value, or equal values.

    Example:
        >>> whiten([1.0, 3.0, 100.0, -100.0], np.array([True, True, False, False])).round(6)
        array([-1.,  1.,  0.,  0.])
    """
    array = np.asarray(values, np.float64)
    chosen = np.ones(array.shape, np.bool_) if mask is None else mask
    moments = moments_of(array, chosen) if moments is None else moments
    result = np.zeros(array.shape)
    if not moments.is_flat:
        result[chosen] = (array[chosen] - moments.mean) / (moments.std + EPSILON)
    return result


def _exact_sum(values: npt.NDArray[np.float64]) -> float:
    items: Iterable[float] = values.tolist()
    return math.fsum(items)
