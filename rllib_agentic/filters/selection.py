"""Selection rules: which of the candidates to keep, given one score each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

Form = Literal["linear", "softmax"]

ROUNDING = 1e-9


def top_p(scores: Sequence[float], order: Sequence[int], p: float, form: Form) -> list[int]:
    """The smallest set of best candidates whose share of the total reaches ``p`` (RAGEN-2, arXiv:2604.06268).

    ``linear`` shares are ``s / sum(s)`` over positive scores; a score that is not positive is never reached, except
    with ``p = 1``, which keeps every candidate. ``softmax`` shares are ``exp(s) / sum(exp(s))``: for scores below 1
    they are nearly uniform, so it keeps about the share p of the candidates.

    Args:
        scores: one a candidate.
        order: all candidates, best first.
        p: in (0, 1].
        form: how scores become shares.

    Example:
        >>> scores = [0.1, 0.0, 0.5, 0.4]
        >>> top_p(scores, [2, 3, 0, 1], 0.9, "linear")
        [2, 3]
        >>> top_p(scores, [2, 3, 0, 1], 0.9, "softmax")
        [2, 3, 0, 1]
    """
    if p >= 1.0 or not scores:
        return list(order)
    if form == "linear":
        weights = [max(score, 0.0) for score in scores]
    else:
        weights = np.exp(np.array(scores) - max(scores)).tolist()
    wanted = p * math.fsum(weights) * (1 - ROUNDING)
    kept: list[int] = []
    reached = 0.0
    for i in order:
        if reached >= wanted or weights[i] <= 0.0:
            break
        kept.append(i)
        reached += weights[i]
    return kept


def fraction_count(fraction: float, total: int) -> int:
    """How many of ``total`` groups a share means: rounded down, but at least one.

    Example:
        >>> fraction_count(0.25, 8), fraction_count(0.29, 100), fraction_count(0.25, 3)
        (2, 29, 1)
    """
    return max(1, math.floor(fraction * total + ROUNDING))


def min_p(scores: Sequence[float], order: Sequence[int], share: float) -> list[int]:
    """The candidates whose score is at least ``share`` times the best one; none where no score is positive.

    Example:
        >>> min_p([0.5, 0.1, 0.25], [0, 2, 1], 0.5)
        [0, 2]
    """
    best = max(scores, default=0.0)
    return [i for i in order if best > 0.0 and scores[i] >= share * best * (1 - ROUNDING)]
