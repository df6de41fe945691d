"""When a run will stop, from how fast it went so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_WINDOW = 10


def time_left_s(history: Sequence[Mapping[str, float]], stop: Mapping[str, float]) -> float | None:
    """Seconds until the first stop criterion that can be foreseen; None where none can.

    Only counters are foreseen: iterations, time, and totals (``*_total``, ``*_lifetime``). Nobody knows when a
    success rate will be reached.

    Args:
        history: results so far, flat, in order, each with ``time_total_s``.
        stop: metric to the value that stops the run.

    Example:
        >>> time_left_s([{"training_iteration": 2, "time_total_s": 10.0}], {"training_iteration": 8})
        30.0
    """
    estimates = [left for key, target in stop.items() if (left := _left_s(history, key, target)) is not None]
    return min(estimates, default=None)


def format_duration(seconds: float) -> str:
    """A duration for people.

    Example:
        >>> format_duration(5.4), format_duration(200), format_duration(7322)
        ('5s', '3m20s', '2h02m')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _left_s(history: Sequence[Mapping[str, float]], key: str, target: float) -> float | None:
    points = [(row["time_total_s"], row[key]) for row in history if key in row and "time_total_s" in row]
    if not points or not _is_counter(key):
        return None
    now_s, value = points[-1]
    if key == "time_total_s":
        return max(target - now_s, 0.0)
    before_s, before = points[-_WINDOW - 1] if len(points) > _WINDOW else (0.0, 0.0)
    if now_s <= before_s or value <= before:
        return None
    return max((target - value) * (now_s - before_s) / (value - before), 0.0)


def _is_counter(key: str) -> bool:
    return key in ("training_iteration", "time_total_s") or key.endswith(("_total", "_lifetime"))
