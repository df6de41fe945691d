"""Endless streams of a finite number of things, of which any part can be told without the ones before."""

from __future__ import annotations

import numpy as np

from rllib_agentic.rollout.seeds import seed_of


def endless(count: int, start: int, size: int, *seed: int | str) -> list[int]:
    """Entries ``start`` to ``start + size - 1`` of permutations of ``range(count)``, laid end to end.

    Args:
        count: how many things there are, at least 1.
        start: number of the first entry, from 0.
        size: how many entries.
        seed: names the stream; each permutation follows from it and from its own number.

    Example:
        >>> sorted(endless(3, 0, 3, 7)), endless(3, 0, 5, 7)[2:] == endless(3, 2, 3, 7)
        ([0, 1, 2], True)
    """
    found: list[int] = []
    while len(found) < size:
        epoch, place = divmod(start + len(found), count)
        order = np.random.Generator(np.random.Philox(seed_of(*seed, epoch))).permutation(count)
        found += order[place : place + size - len(found)].tolist()
    return found
