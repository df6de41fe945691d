"""The levels of BabyAI, by short names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import gymnasium
import minigrid  # noqa: F401  (registers the levels)
from gymnasium.envs.registration import load_env_creator
from minigrid.envs.babyai.core import roomgrid_level

_NAME = re.compile(r"BabyAI-(.+)-v\d+")
_FAMILIES = {
    "GoTo": "go to",
    "FindObj": "find",
    "Open": "open",
    "Unblock": "pick up",
    "Unlock": "unlock",
    "BlockedUnlock": "unlock",
    "KeyInBox": "unlock",
    "KeyCorridor": "unlock",
    "Pickup": "pick up",
    "PutNext": "put next to",
    "MoveTwoAcross": "put next to",
    "OneRoom": "pick up",
    "ActionObjDoor": "mixed",
    "Synth": "mixed",
    "MiniBoss": "boss",
    "Boss": "boss",
}

# The package tells on standard output of every layout that it rejects.
roomgrid_level.print = lambda *_: None  # type: ignore[attr-defined]


@cache
def level_ids() -> Mapping[str, str]:
    """Short name to the name that Gymnasium knows, in the package's order: ``{"GoToLocal": "BabyAI-GoToLocal-v0"}``."""
    matches = [match for name in gymnasium.registry if (match := _NAME.fullmatch(name))]
    return {match[1]: match[0] for match in matches}


def make_level(name: str, seed: int) -> Any:
    """A level laid out for a seed: the package's own environment, without wrappers.

    Args:
        name: short name, as in :func:`level_ids`.
        seed: decides layout and mission.
    """
    creator, arguments = _creator(name)
    level = creator(**arguments)
    level.reset(seed=seed)
    return level


def family(name: str) -> str:
    """What a level asks for, roughly: the category that results are reported by.

    Example:
        >>> family("PutNextS4N1"), family("UnlockPickup"), family("GoToSeqS5R2")
        ('put next to', 'unlock', 'go to')
    """
    prefix = max((prefix for prefix in _FAMILIES if name.startswith(prefix)), key=len)
    return _FAMILIES[prefix]


@cache
def _creator(name: str) -> tuple[Any, dict[str, Any]]:
    spec = gymnasium.spec(level_ids()[name])
    assert spec.entry_point is not None
    creator = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    return creator, dict(spec.kwargs)
