"""Keys of the configuration: merging sections, finding search spaces, and types of RLlib's own keys."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from rllib_agentic.errors import InputError

TOP_LEVEL_ALIASES = {
    "learning_rate": "lr",
    "batch_size": "minibatch_size",
    "epochs": "num_epochs",
    "max_grad_norm": "grad_clip",
    "environment": "env",
    "reward_fn": "env_config",
    "sampling": "rollout",
}

_IDENTITY = ("type", "preset", "path")


def merge_section(old: Any, new: Any) -> Any:
    """Lay ``new`` over ``old``: mappings merge key by key, all else replaces.

    A mapping that says anew what the section *is* starts afresh: another ``type``, or a model's ``preset`` or ``path``.

    Example:
        >>> merge_section({"type": "grpo", "std": True}, {"std": False})
        {'type': 'grpo', 'std': False}
        >>> merge_section({"type": "grpo", "std": True}, {"type": "rloo"})
        {'type': 'rloo'}
    """
    if not isinstance(new, Mapping) or not isinstance(old, Mapping):
        return dict(new) if isinstance(new, Mapping) else new
    if any(key in new and new[key] != old.get(key) for key in _IDENTITY):
        return dict(new)
    merged = dict(old)
    for key, value in new.items():
        merged[key] = merge_section(old.get(key), value) if isinstance(value, Mapping) else value
    return merged


def named_object(name: str, where: str) -> Any:
    """What ``module:name`` names.

    Raises:
        InputError: there is no such module, or nothing of that name in it.

    Example:
        >>> named_object("collections:OrderedDict", "config.x").__name__
        'OrderedDict'
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise InputError(f"{where}: expected 'module:Name', got {name!r}")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{where}: {name!r} cannot be imported: {error}") from error


def has_search_space(value: Any) -> bool:
    """Whether Tune still has something to fill in: a domain or ``{"grid_search": [...]}`` at any depth."""
    from ray.tune.search.sample import Domain

    if isinstance(value, Domain):
        return True
    if isinstance(value, Mapping):
        return "grid_search" in value or any(has_search_space(part) for part in value.values())
    return isinstance(value, list | tuple) and any(has_search_space(part) for part in value)


def check_types(config: object, given: Mapping[str, Any]) -> list[str]:
    """Faults of RLlib's own keys whose default is a number, a bool or a string, and that got something else.

    RLlib takes any value and fails later, far from the cause.
    """
    faults = []
    for key, value in given.items():
        default = getattr(config, key, None)
        if key == "simple_optimizer":  # RLlib itself makes a bool of its text
            continue
        if default is None or value is None or has_search_space(value):
            continue
        whole = not key.startswith(("num_gpus_", "num_cpus_"))  # Ray gives parts of a GPU or CPU too
        wrong = (
            (isinstance(default, bool) and not isinstance(value, bool))
            or (isinstance(default, int | float) and not isinstance(default, bool) and not _is_number_like(value))
            or (isinstance(default, int) and not isinstance(default, bool) and isinstance(value, float) and whole)
        )
        if wrong:
            faults.append(f"config.{key}: expected {type(default).__name__}, got {value!r} ({type(value).__name__})")
    return faults


def _is_number_like(value: Any) -> bool:
    # Some of RLlib's numbers may be schedules ([[0, 1e-3], [1000, 1e-4]]) or the word "auto".
    return (
        (isinstance(value, int | float) and not isinstance(value, bool)) or isinstance(value, list) or value == "auto"
    )
