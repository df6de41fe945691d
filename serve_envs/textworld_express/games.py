"""The games, how hard each is, and the tasks: a game and a seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Literal, NamedTuple

from rllib_agentic.errors import InputError, did_you_mean

Difficulty = Literal["easy", "medium", "hard"]

SEEDS_PER_FOLD = 1000
FOLDS: Mapping[str, tuple[str, int]] = {"train": ("train", 0), "validation": ("dev", 10_000), "test": ("test", 20_000)}
"""Split to the package's name of the fold and its first seed; each fold is 1000 seeds, and they share no game."""

GAMES: Mapping[str, Mapping[Difficulty, str]] = {
    "cookingworld": {
        "easy": "numLocations=1,numIngredients=1,numDistractorItems=0,includeDoors=0,limitInventorySize=0",
        "medium": "numLocations=3,numIngredients=2,numDistractorItems=4,includeDoors=0,limitInventorySize=0",
        "hard": "",
    },
    "twc": {
        "easy": "numLocations=1,numItemsToPutAway=1,includeDoors=0,limitInventorySize=0",
        "medium": "numLocations=2,numItemsToPutAway=2,includeDoors=0,limitInventorySize=0",
        "hard": "",
    },
    "coin": {
        "easy": "numLocations=3,numDistractorItems=0,includeDoors=0,limitInventorySize=0",
        "medium": "numLocations=6,numDistractorItems=2,includeDoors=0,limitInventorySize=0",
        "hard": "",
    },
    "mapreader": {
        "easy": "numLocations=4,maxDistanceApart=2,maxDistractorItemsPerLocation=0,includeDoors=0",
        "medium": "numLocations=8,maxDistanceApart=3,maxDistractorItemsPerLocation=1,includeDoors=0",
        "hard": "",
    },
    "arithmetic": {"easy": "", "medium": "", "hard": ""},
    "sorting": {"easy": "", "medium": "", "hard": ""},
    "simonsays": {
        "easy": "gameLength=3,numDistractors=1",
        "medium": "gameLength=5,numDistractors=3",
        "hard": "gameLength=10,numDistractors=5",
    },
    "peckingorder": {"easy": "", "medium": "", "hard": ""},
}
"""Parameters of each game at each difficulty; "" is the package's own setting."""


class Game(NamedTuple):
    """One task: what the program is told to make."""

    name: str
    params: str
    fold: str
    seed: int


def game_of(games: tuple[str, ...], difficulty: Difficulty, split: str, index: int) -> Game:
    """The task of an index: the games take turns.

    Example:
        >>> game_of(("coin", "twc"), "hard", "test", 5)
        Game(name='twc', params='', fold='test', seed=20002)
    """
    fold, first = FOLDS[split]
    name = games[index % len(games)]
    return Game(name, GAMES[name][difficulty], fold, first + index // len(games))


def splits_hash(games: tuple[str, ...], difficulty: Difficulty) -> str:
    """Hash of what the tasks are made from."""
    made_from = [[name, GAMES[name][difficulty]] for name in games], FOLDS, SEEDS_PER_FOLD
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]


def check_games(games: tuple[str, ...]) -> None:
    """Refuse what is no game.

    Raises:
        InputError: an unknown name, a name given twice, or none at all.
    """
    if not games or len(set(games)) < len(games):
        raise InputError(f"textworld_express: games must be one or more different names, got {games!r}")
    for name in games:
        if name not in GAMES:
            raise InputError(f"textworld_express: there is no game {name!r}. {did_you_mean(name, GAMES)}")
