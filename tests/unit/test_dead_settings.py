"""No setting is dead: whatever can be written in a YAML is read somewhere in the source.  # UX06"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rllib_agentic.algorithms.config import _READ_OF_RLLIB, AgenticConfig
from rllib_agentic.algorithms.dead_keys import DEAD_KEYS
from rllib_agentic.algorithms.sections import _FAMILIES, _PLAIN
from rllib_agentic.cli.experiment import CheckpointSettings, ExperimentSettings
from rllib_agentic.components import Settings
from rllib_agentic.filters import FILTERS

ROOT = Path(__file__).resolve().parents[2]
HANDED_ON_WHOLE = {CheckpointSettings}  # to Tune's class of the same fields


@cache
def names_read() -> frozenset[str]:
    """Attributes that are read, and texts (a field may be read by its name), in the whole package."""
    found = set()
    for package in ("rllib_agentic", "serve_envs"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return frozenset(found)


def within(cls: type[Settings]) -> Iterator[type[Settings]]:
    """A settings class and those of its fields."""
    yield cls
    for field in cls.model_fields.values():
        parts = [field.annotation, *getattr(field.annotation, "__args__", ())]
        yield from (p for part in parts if isinstance(part, type) and issubclass(part, Settings) for p in within(part))


def all_settings() -> list[type[Settings]]:
    families = [family.get(name) for family in (*_FAMILIES.values(), FILTERS) for name in family]
    outer = [*_PLAIN.values(), *families, ExperimentSettings]
    return sorted({cls for one in outer for cls in within(one)} - HANDED_ON_WHOLE, key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", all_settings(), ids=lambda cls: cls.__name__)
def test_every_setting_is_read(cls: type[Settings]) -> None:
    assert [name for name in cls.model_fields if name not in names_read()] == []


def test_a_dead_setting_would_be_found() -> None:
    class Dead(Settings):
        temprature_of_nothing: float = 1.0

    assert not set(Dead.model_fields) & names_read()
    assert len(all_settings()) > 30


def test_no_key_of_rllibs_is_both_read_and_dead() -> None:
    assert not set(_READ_OF_RLLIB) & DEAD_KEYS.keys()
    assert set(_READ_OF_RLLIB) <= vars(AgenticConfig()).keys()
