"""pass@k and avg@k: what k samples a task are worth."""

from __future__ import annotations

import math
from collections.abc import Sequence


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """The unbiased estimate that at least one of k samples solves a task (Chen et al. 2021, arXiv:2107.03374, eq. 1).

    ``1 - C(n - c, k) / C(n, k)``: of all sets of k among the n samples drawn, the share that holds a success.

    Args:
        samples: n, drawn for the task.
        successes: c, how many of them solved it.
        k: from 1 to n.

    Example:
        >>> pass_at_k(4, 1, 2)
        0.5
    """
    if not 1 <= k <= samples or not 0 <= successes <= samples:
        raise ValueError(f"pass_at_k: k={k} and {successes} successes with {samples} samples; expected both to fit")
    return 1.0 - math.comb(samples - successes, k) / math.comb(samples, k)


def mean_pass_at_k(by_task: Sequence[Sequence[bool]], k: int) -> float:
    """:func:`pass_at_k` averaged over tasks; every task needs at least k samples."""
    _check(by_task, k)
    return math.fsum(pass_at_k(len(task), sum(map(bool, task)), k) for task in by_task) / len(by_task)


def avg_at_k(by_task: Sequence[Sequence[float]], k: int) -> float:
    """avg@k: the mean over tasks of each task's mean over its samples, of which there must be at least k.

    All samples are used: their mean is what the mean of k of them is expected to be.
    """
    _check(by_task, k)
    return math.fsum(math.fsum(task) / len(task) for task in by_task) / len(by_task)


def _check(by_task: Sequence[Sequence[float]], k: int) -> None:
    fewest = min((len(task) for task in by_task), default=0)
    if k < 1 or fewest < k:
        raise ValueError(f"@k: k={k}, but the task with the fewest samples has {fewest}; draw more or lower k")
