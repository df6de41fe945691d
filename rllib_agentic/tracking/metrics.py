"""Results to flat, finite, well-named numbers."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any, NamedTuple

MAX_NAME = 250

ALWAYS_PRESENT = (
    "trained_tokens",
    "valid_episode_frac",
    "kept_group_frac",
    "truncated_frac",
    "tool_parse_error_rate",
    "env_error_rate",
    "mismatch_p95",
)
"""Every training result has these, whatever the algorithm: a loss of 0 must be told apart from nothing trained."""

_NOT_METRICS = frozenset({"config", "pid", "timestamp"})
_BAD = re.compile(r"[^\w.\- :/]")


class Scalars(NamedTuple):
    """A result as numbers. ``nonfinite`` names the entries that were NaN or infinite; ``values`` lacks them."""

    values: dict[str, float]
    nonfinite: list[str]


def scalars(result: Mapping[str, Any]) -> Scalars:
    """All numbers of a nested result, under their path joined by ``/``.

    Numpy and torch scalars are numbers, booleans are 0 and 1; texts, lists, None and RLlib's ``config`` are left
    out. Where two paths join to one name, both are kept (see :func:`unique_names`).

    Example:
        >>> scalars({"env_runners": {"success_rate": 0.5, "note": None}, "loss": float("nan")})
        Scalars(values={'env_runners/success_rate': 0.5}, nonfinite=['loss'])
    """
    found = [(path, number) for path, value in _leaves(result, ()) if (number := _number(value)) is not None]
    names = unique_names([path for path, _ in found], "/")
    values, nonfinite = {}, []
    for name, (_, number) in zip(names, found, strict=True):
        if math.isfinite(number):
            values[name] = number
        else:
            nonfinite.append(name)
    return Scalars(values, nonfinite)


def unique_names(paths: list[tuple[str, ...]], separator: str) -> list[str]:
    """Join paths to names; where two paths would share one, all but the deepest get a short hash.

    Example:
        >>> unique_names([("a/b",), ("a", "b")], "/")
        ['a/b-15d9d1', 'a/b']
    """
    joined = [separator.join(path) for path in paths]
    owner: dict[str, tuple[str, ...]] = {}
    for name, path in zip(joined, paths, strict=True):
        owner[name] = max(owner.get(name, path), path, key=lambda p: (len(p), p))
    return [
        name if owner[name] == path else f"{name}-{_hash(repr(path))}" for name, path in zip(joined, paths, strict=True)
    ]


def clean_name(name: str) -> str:
    """A name that MLflow takes, the same in every process, and never the same for two names.

    Names of letters, digits and ``_ . - : /`` stay as they are; anything else is replaced, and a short hash of the
    old name keeps changed names apart.

    Example:
        >>> clean_name("env_runners/success_rate"), clean_name("reward[0]")
        ('env_runners/success_rate', 'reward_0_-b7b066')
    """
    parts = [part for part in _BAD.sub("_", name).split("/") if part]
    clean = "/".join("_" * len(part) if set(part) == {"."} else part for part in parts)
    if clean.startswith(".."):
        clean = "__" + clean[2:]
    if clean == name and clean and len(clean) <= MAX_NAME:
        return name
    suffix = f"-{_hash(name)}"
    return (clean or "unnamed")[: MAX_NAME - len(suffix)] + suffix


def missing_metrics(result: Mapping[str, Any]) -> list[str]:
    """Which of :data:`ALWAYS_PRESENT` a result lacks, at whatever depth they stand."""
    present = {path[-1] for path, value in _leaves(result, ()) if _number(value) is not None}
    return [name for name in ALWAYS_PRESENT if name not in present]


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if path or key not in _NOT_METRICS:
                yield from _leaves(value, (*path, str(key)))
    else:
        yield path, node


def _number(value: Any) -> float | None:
    if isinstance(value, Real):
        try:
            return float(value)
        except OverflowError:  # an int beyond float64
            return math.inf if value > 0 else -math.inf  # type: ignore[operator]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # numpy and torch, without importing them
        return _number(value.item())
    return None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]
