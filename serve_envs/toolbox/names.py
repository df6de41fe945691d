"""Invented names and titles, put together from the words in ``names.json``."""

from __future__ import annotations

import json
import random
from functools import cache
from importlib.resources import files

GENRES = ("adventure", "comedy", "crime", "drama", "fantasy", "history", "horror", "romance", "science fiction", "war")


@cache
def words(kind: str) -> tuple[str, ...]:
    """Words of one kind, for example ``first`` (names), ``wares`` or ``venues``."""
    return tuple(json.loads(files("serve_envs.toolbox").joinpath("names.json").read_text(encoding="utf-8"))[kind])


def people(draw: random.Random, count: int) -> list[str]:
    """Different full names; no two have the same last name."""
    return [f"{draw.choice(words('first'))} {last}" for last in draw.sample(words("last"), count)]


def titles(draw: random.Random, count: int) -> list[str]:
    """Different titles of two words."""
    pairs = [f"{adjective} {noun}" for adjective in words("adjectives") for noun in words("nouns")]
    return draw.sample(pairs, count)
