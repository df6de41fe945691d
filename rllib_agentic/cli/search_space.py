"""Search spaces in YAML files: ``lr: tune.loguniform(1e-5, 1e-3)`` and ``{grid_search: [...]}`` at any depth."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from rllib_agentic.cli.places import fill, searched
from rllib_agentic.errors import InputError, did_you_mean

_DOMAINS = (
    "choice", "grid_search", "lograndint", "loguniform", "qlograndint", "qloguniform", "qrandint", "qrandn",
    "quniform", "randint", "randn", "uniform",
)  # fmt: skip
_PREFIX = "tune."


def read_space(value: Any, where: str = "config") -> Any:
    """The same value with Tune's domains in place of their texts.

    Args:
        value: of a YAML file: mappings, lists, numbers, texts.
        where: for messages.

    Raises:
        InputError: a text begins with ``tune.`` but names no domain, or its arguments do not fit.

    Example:
        >>> read_space({"lr": "tune.uniform(0, 1)"})["lr"].domain_str
        '(0, 1)'
    """
    if isinstance(value, Mapping):
        return {key: read_space(part, f"{where}.{key}") for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [read_space(part, f"{where}[{i}]") for i, part in enumerate(value)]
    if isinstance(value, str) and value.startswith(_PREFIX):
        return _domain(value, where)
    return value


def examples(space: Any) -> Iterator[dict[str, Any]]:
    """Configurations from a space that show every listed value once: what can be checked before anything starts.

    The first has the first value of every grid and choice, and the middle of the others; each further one has another
    listed value in one place.
    """
    places = searched(space)
    first = {path: next(iter(_values(domain))) for path, domain in places}
    yield fill(space, first)
    for path, domain in places:
        for value in itertools.islice(_values(domain), 1, None):
            yield fill(space, first | {path: value})


def count_trials(space: Any, num_samples: int) -> int:
    """How many trials a space makes: all combinations of its grids, ``num_samples`` times."""
    grids = [len(domain["grid_search"]) for _, domain in searched(space) if isinstance(domain, Mapping)]
    total = num_samples
    for size in grids:
        total *= size
    return total


def _domain(text: str, where: str) -> Any:
    from ray import tune

    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:
        raise InputError(f"{where}: cannot read {text!r}; expected such as tune.uniform(0, 1)") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        raise InputError(f"{where}: expected a call such as tune.uniform(0, 1), got {text!r}")
    name = call.func.attr
    if name not in _DOMAINS or ast.unparse(call.func) != f"{_PREFIX}{name}":
        near = did_you_mean(name, _DOMAINS)
        raise InputError(f"{where}: {ast.unparse(call.func)!r} cannot be used in a file. {near}")
    try:
        args = [ast.literal_eval(arg) for arg in call.args]
        kwargs = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        return getattr(tune, name)(*args, **kwargs)
    except (ValueError, TypeError, AssertionError) as error:
        raise InputError(f"{where}: {text!r}: {error}") from None


def _values(domain: Any) -> Iterator[Any]:
    """The listed values of a grid or choice; one value from inside of any other domain."""
    from ray.tune.search.sample import Categorical, Float, Integer

    if isinstance(domain, Mapping):
        yield from domain["grid_search"]
    elif isinstance(domain, Categorical):
        yield from domain.categories
    elif isinstance(domain, Integer):
        yield min(max((int(domain.lower) + int(domain.upper)) // 2, int(domain.lower)), int(domain.upper) - 1)
    elif isinstance(domain, Float):
        yield (domain.lower + domain.upper) / 2 if abs(domain.lower) != float("inf") else 0.0
    else:
        yield domain.sample()
