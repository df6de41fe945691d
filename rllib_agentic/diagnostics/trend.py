"""A signal over the last iterations: its level and where it is going."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def level(values: Sequence[float], window: int) -> float | None:
    """Mean of the last ``window`` values; None where there are fewer."""
    return math.fsum(values[-window:]) / window if len(values) >= window else None


def slope(values: Sequence[float]) -> float:
    """Least-squares slope, in units of the signal an iteration; 0 for fewer than two values.

    Example:
        >>> slope([1.0, 3.0, 5.0]), slope([7.0])
        (2.0, 0.0)
    """
    if len(values) < 2:
        return 0.0
    at = np.arange(len(values)) - (len(values) - 1) / 2
    return float(at @ np.asarray(values, np.float64) / (at @ at))
