"""What is in a tracker before the agent comes: people, keywords and issues, made up by the number of the world."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

PRIORITIES = ("critical", "urgent", "bug", "feature", "wish")
STATUSES = ("unread", "deferred", "chatting", "need-eg", "in-progress", "testing", "done-cbb", "resolved")
_FIRST = (
    "Ada",
    "Ben",
    "Cleo",
    "Dan",
    "Eve",
    "Finn",
    "Gina",
    "Hugo",
    "Iris",
    "Jon",
    "Kim",
    "Leo",
    "Mia",
    "Ned",
    "Ola",
    "Pia",
)
_LAST = (
    "Abel",
    "Brandt",
    "Costa",
    "Duarte",
    "Eklund",
    "Farkas",
    "Gruber",
    "Haas",
    "Ivanov",
    "Jansen",
    "Keller",
    "Lindt",
)
_THINGS = ("printer", "login page", "backup", "search box", "mail server", "calendar", "export", "payment form", "wiki",
           "projector", "badge reader", "build server", "report", "phone", "price list", "coffee machine")  # fmt: skip
_FAULTS = ("does not start", "is slow", "shows the wrong date", "loses data", "is out of order", "needs a new owner",
           "crashes on Mondays", "has no documentation", "prints blank pages", "forgets its settings")  # fmt: skip
_PLACES = ("Berlin", "Porto", "Oslo", "Lyon", "Graz", "Turin", "Ghent", "Brno", "Malmo", "Vigo")
_KEYWORDS = (
    "hardware",
    "network",
    "security",
    "website",
    "billing",
    "travel",
    "training",
    "cleanup",
    "audit",
    "mobile",
)


@dataclass(frozen=True, slots=True)
class Person:
    """A user of the tracker."""

    login: str
    name: str
    phone: str


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue; its number is its place in the world's list, from 1."""

    title: str
    priority: str
    status: str
    assigned: str
    keywords: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class World:
    """One tracker's content."""

    people: tuple[Person, ...]
    keywords: tuple[str, ...]
    issues: tuple[Issue, ...]

    def number(self, issue: Issue) -> int:
        """What the tracker calls an issue."""
        return self.issues.index(issue) + 1


@cache
def make_world(number: int) -> World:
    """The world of a number; no two worlds share an issue's title.

    Args:
        number: from 0.
    """
    draw = random.Random(f"webarena_local world {number}")
    names = draw.sample([(first, last) for first in _FIRST for last in _LAST], 8)
    people = tuple(
        Person(f"{first.lower()}{last[0].lower()}{at}", f"{first} {last}", f"555-{draw.randrange(1000, 10000)}")
        for at, (first, last) in enumerate(names)
    )
    keywords = tuple(draw.sample(_KEYWORDS, 6))
    titles = [f"{thing} in {place} {fault}" for thing in _THINGS for place in _PLACES for fault in _FAULTS]
    random.Random("webarena_local titles").shuffle(titles)
    mine = titles[number * 40 : number * 40 + 30]
    issues = tuple(
        Issue(
            title=title[0].upper() + title[1:],
            priority=draw.choice(PRIORITIES),
            status=draw.choice(STATUSES[1:]),
            assigned=draw.choice(people).login,
            keywords=tuple(sorted(draw.sample(keywords, draw.randrange(3)))),
        )
        for title in mine
    )
    return World(people, keywords, issues)


def spare_titles(number: int) -> tuple[str, ...]:
    """Titles that no issue of any world has, for issues that the agent is to create in this world."""
    titles = [f"{thing} in {place} {fault}" for thing in _THINGS for place in _PLACES for fault in _FAULTS]
    random.Random("webarena_local titles").shuffle(titles)
    return tuple(title[0].upper() + title[1:] for title in titles[number * 40 + 30 : number * 40 + 40])
