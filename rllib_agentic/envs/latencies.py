"""How long calls took: a histogram that can be added up over processes, and its percentiles."""

from __future__ import annotations

import math
from collections.abc import Iterable

_SHORTEST_S = 1e-5
_RATIO = 1.1


class Latencies:
    """Counts durations in buckets that grow by a tenth: percentiles are right to about five per cent.

    Example:
        >>> seen = Latencies()
        >>> for milliseconds in range(1, 101):
        ...     seen.add(milliseconds / 1000)
        >>> round(seen.percentile(50), 3), round(seen.percentile(99), 3)
        (0.051, 0.099)
    """

    def __init__(self, counts: Iterable[tuple[int, int]] = ()) -> None:
        self._counts: dict[int, int] = {}
        for bucket, count in counts:
            self._counts[bucket] = self._counts.get(bucket, 0) + count

    def __len__(self) -> int:
        return sum(self._counts.values())

    def add(self, duration_s: float) -> None:
        """Count one call."""
        bucket = max(0, math.ceil(math.log(max(duration_s, _SHORTEST_S) / _SHORTEST_S, _RATIO)))
        self._counts[bucket] = self._counts.get(bucket, 0) + 1

    def percentile(self, percent: float) -> float:
        """The duration in seconds that this share of the calls did not exceed; NaN where there were none."""
        rank = len(self) * percent / 100
        passed = 0
        for bucket in sorted(self._counts):
            passed += self._counts[bucket]
            if passed >= rank:
                return float(_SHORTEST_S * _RATIO ** (bucket - 0.5)) if bucket else _SHORTEST_S
        return math.nan

    def counts(self) -> list[tuple[int, int]]:
        """Buckets with their counts, to be added up elsewhere."""
        return sorted(self._counts.items())
