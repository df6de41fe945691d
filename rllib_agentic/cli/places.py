"""The places of a configuration that a search fills in: found, filled, read, named."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Place = tuple[str | int, ...]
"""Keys and list positions from the top of a configuration."""


def searched(space: Any, place: Place = ()) -> list[tuple[Place, Any]]:
    """Every place that Tune fills in, with its domain or grid, in the order of the file.

    Example:
        >>> searched({"lr": {"grid_search": [1, 2]}, "filters": [{"p": {"grid_search": [0.9]}}]})
        [(('lr',), {'grid_search': [1, 2]}), (('filters', 0, 'p'), {'grid_search': [0.9]})]
    """
    if _is_searched(space):
        return [(place, space)]
    return [found for key, part in _parts(space) for found in searched(part, (*place, key))]


def fill(space: Any, values: Mapping[Place, Any]) -> Any:
    """A copy of the space with values in place of some of its domains."""

    def filled(node: Any, place: Place) -> Any:
        if place in values:
            return copy.deepcopy(values[place])
        if _is_searched(node):
            return node
        if isinstance(node, Mapping):
            return {key: filled(part, (*place, key)) for key, part in node.items()}
        if isinstance(node, list | tuple):
            return [filled(part, (*place, i)) for i, part in enumerate(node)]
        return node

    return filled(space, ())


def with_value(config: Any, place: Place, value: Any) -> Any:
    """A copy of the configuration with a value at a place, which need not be there yet.

    Example:
        >>> with_value({"loss": {"type": "ppo_clip"}}, ("loss", "clip_low"), 0.2)
        {'loss': {'type': 'ppo_clip', 'clip_low': 0.2}}
    """
    if not place:
        return copy.deepcopy(value)
    (key, *rest), changed = place, copy.copy(config)
    there = config[key] if isinstance(key, int) else config.get(key, {})
    changed[key] = with_value(there, tuple(rest), value)
    return changed


def at(config: Any, place: Place) -> Any:
    """What a trial's configuration has at a place of the search space."""
    for key in place:
        config = config[key]
    return config


def short_names(paths: Sequence[Place]) -> list[str]:
    """Names for people: each path's last words, as many as tell it apart.

    Example:
        >>> short_names([("filters", 0, "p"), ("lr",), ("model", "lr")])
        ['p', 'lr', 'model.lr']
    """
    names = []
    for path in paths:
        for size in range(1, len(path) + 1):
            tail = path[-size:]
            if isinstance(tail[0], str) and sum(other[-size:] == tail for other in paths) == 1:
                break
        names.append(".".join(map(str, tail)))
    return [
        ".".join(map(str, path)) if names.count(name) > 1 else name for path, name in zip(paths, names, strict=True)
    ]


def _is_searched(node: Any) -> bool:
    from ray.tune.search.sample import Domain

    return isinstance(node, Domain) or (isinstance(node, Mapping) and "grid_search" in node)


def _parts(node: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(node, Mapping):
        yield from node.items()
    elif isinstance(node, list | tuple):
        yield from enumerate(node)
