"""Group-relative advantages: how far each value lies above the mean of its group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from rllib_agentic.advantages.raw_rewards import is_flat

Scale = Literal["std", "none"]


def relative_advantages(
    values: Sequence[float], *, magnitude: float, scale: Scale, ddof: int, epsilon: float, tolerance: float
) -> list[float]:
    """How far each value lies above the mean of all: ``(v - mean) / (std + epsilon)``, or without the division.

    Sums are exactly rounded, so the result does not depend on the order of the values.

    Args:
        values: one value a member.
        magnitude: the size of the numbers that were added up to make the values (see :func:`is_flat`).
        scale: ``"std"`` divides by the standard deviation, ``"none"`` does not.
        ddof: 1 for the sample standard deviation (divisor n - 1), 0 for the population's.
        epsilon: added to the standard deviation.
        tolerance: relative; closer values are equal, and equal values or a single one give exactly 0.

    Example:
        >>> settings = dict(magnitude=1.0, ddof=1, epsilon=1e-6, tolerance=1e-6)
        >>> relative_advantages([1, 0, 0, 0], scale="none", **settings)
        [0.75, -0.25, -0.25, -0.25]
        >>> [round(a, 6) for a in relative_advantages([1, 0, 0, 0], scale="std", **settings)]
        [1.499997, -0.499999, -0.499999, -0.499999]
        >>> relative_advantages([0.1 + 0.2, 0.3], scale="std", **settings)
        [0.0, 0.0]
    """
    if is_flat(values, magnitude, tolerance):
        return [0.0] * len(values)
    mean = math.fsum(values) / len(values)
    deviations = [value - mean for value in values]
    if scale == "none":
        return deviations
    std = math.sqrt(math.fsum(d * d for d in deviations) / (len(values) - ddof))
    return [d / (std + epsilon) for d in deviations]
