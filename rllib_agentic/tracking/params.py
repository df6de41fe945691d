"""A config as MLflow parameters: flat, short, the same text in every process."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from rllib_agentic.tracking.metrics import clean_name, unique_names

MAX_VALUE = 6000
"""MLflow cuts longer values in silence; here a marker says so."""

_PLAIN = (bool, int, float, str)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,}")


def flat_params(config: Mapping[str, Any]) -> dict[str, str]:
    """Parameter names (``a.b.c``, cleaned) to texts of at most :data:`MAX_VALUE` characters.

    Example:
        >>> flat_params({"a": 1, "c": {"d": {"e": [1, 2, 3]}}, "f": None})
        {'a': '1', 'c.d.e': '[1, 2, 3]', 'f': 'None'}
    """
    leaves = list(_leaves(config, ()))
    names = unique_names([path for path, _ in leaves], ".")
    return {clean_name(name): cut(_text(value)) for name, (_, value) in zip(names, leaves, strict=True)}


def cut(text: str, limit: int = MAX_VALUE) -> str:
    """At most ``limit`` characters, with a marker where something was cut."""
    if len(text) <= limit:
        return text
    marker = f"... [cut: {len(text)} characters, all of them in config.yaml]"
    return text[: limit - len(marker)] + marker


def plain(value: Any) -> Any:
    """A value in the types of YAML and JSON, without memory addresses: what ``config.yaml`` holds."""
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    for kind in _PLAIN:  # subclasses, such as numpy's float64
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Mapping):
        return {key if isinstance(key, (str, int, float, bool)) else _name(key): plain(v) for key, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(v) for v in value), key=repr)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):  # numpy and torch
        return plain(value.tolist())
    if hasattr(value, "model_dump"):  # pydantic
        return plain(value.model_dump())
    return _name(value)


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(node, "model_dump"):
        node = node.model_dump()
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from _leaves(value, (*path, str(key)))
    elif path:
        yield path, node


def _text(value: Any) -> str:
    value = plain(value)
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else str(value)
    return _without_addresses(text)


def _name(value: Any) -> str:
    """A function or class by its name, everything else by its repr without addresses."""
    if isinstance(value, functools.partial):
        bound = [str(plain(v)) for v in value.args] + [f"{k}={plain(v)}" for k, v in value.keywords.items()]
        return f"partial({', '.join([_name(value.func), *bound])})"
    if inspect.isroutine(value) or inspect.isclass(value):
        return f"{getattr(value, '__module__', '?')}.{getattr(value, '__qualname__', repr(value))}"
    return _without_addresses(repr(value))


def _without_addresses(text: str) -> str:
    return _ADDRESS.sub("", text)
