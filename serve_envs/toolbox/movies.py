"""Films: who made them, who played in them, and how they did."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from rllib_agentic.tools import ToolError, tool
from serve_envs.toolbox.assignment import Assignment, PlannedCall
from serve_envs.toolbox.names import GENRES, people, titles

_FILMS, _PEOPLE = 60, 40


class Movies:
    """Sixty invented films with directors, casts, genres, ratings and takings.

    Args:
        draw: decides everything.
    """

    def __init__(self, draw: random.Random) -> None:
        names = people(draw, _PEOPLE)
        directors, actors = names[:12], names[8:]  # four do both
        self.films: dict[int, dict[str, Any]] = {}
        for number, title in enumerate(titles(draw, _FILMS)):
            self.films[100 + number] = {
                "title": title,
                "year": draw.randint(1980, 2023),
                "director": draw.choice(directors),
                "cast": draw.sample(actors, draw.randint(3, 6)),
                "genres": sorted(draw.sample(GENRES, draw.randint(1, 2))),
                "minutes": draw.randint(80, 170),
                "rating": round(draw.uniform(3.0, 9.5), 1),
                "takings_m": draw.randint(1, 900),
            }
        self.people = {500 + number: name for number, name in enumerate(names)}

    def snapshot(self) -> dict[str, Any]:
        """Nothing can be changed."""
        return {}

    def words(self) -> list[Any]:
        """Titles, names and numbers."""
        return [film["title"] for film in self.films.values()] + [*self.people.values(), *self.films, *self.people]

    @tool
    def find_film(self, title: str) -> list[dict[str, Any]]:
        """Find films by a part of their title; gives id and title.

        Args:
            title: a part of the title, in any case.
        """
        found = [
            {"id": key, "title": film["title"]}
            for key, film in self.films.items()
            if title.casefold() in film["title"].casefold()
        ]
        if not found or len(found) > 10:
            raise ToolError(f"{len(found)} films have {title!r:.60} in their title" + ("; say more" if found else ""))
        return found

    @tool
    def film(self, film_id: int) -> dict[str, Any]:
        """Look up a film: title, year, director, genres, minutes, rating, takings in millions.

        Args:
            film_id: its id.
        """
        return {key: value for key, value in self._film(film_id).items() if key != "cast"}

    @tool
    def cast(self, film_id: int) -> list[str]:
        """List who plays in a film.

        Args:
            film_id: its id.
        """
        return list(self._film(film_id)["cast"])

    @tool
    def find_person(self, name: str) -> dict[str, Any]:
        """Find a person by name; gives id and name.

        Args:
            name: the full name.
        """
        key = next((key for key, known in self.people.items() if known.casefold() == name.casefold()), None)
        if key is None:
            raise ToolError(f"there is no {name!r:.60}")
        return {"id": key, "name": self.people[key]}

    @tool
    def films_of(self, person_id: int) -> dict[str, list[int]]:
        """List the ids of the films that a person directed, and of those in which the person plays.

        Args:
            person_id: the person's id.
        """
        if person_id not in self.people:
            raise ToolError(f"there is no person {person_id}")
        name = self.people[person_id]
        return {"directed": self._directed(name), "played": self._played(name)}

    def assignments(self, draw: random.Random) -> Iterator[Assignment]:
        """Endless tasks in this world, all kinds in turn."""
        while True:
            yield self._fact(draw)
            yield self._both_play(draw)
            yield self._best_of(draw)
            yield self._count(draw)
            yield self._takings(draw)

    def _fact(self, draw: random.Random) -> Assignment:
        key = draw.choice(list(self.films))
        film = self.films[key]
        field, words, answer = draw.choice(
            [
                ("director", 'Who directed "{}"?', film["director"]),
                ("genres", 'Which genres has "{}"?', frozenset(film["genres"])),
                ("minutes", 'How many minutes long is "{}"?', float(film["minutes"])),
                ("year", 'In which year did "{}" come out?', float(film["year"])),
            ]
        )
        how = {"director": "the name", "genres": "the genres, parted by commas"}.get(field, "a number")
        return Assignment(f"{words.format(film['title'])} Answer with {how}.", "one film", self._to_film(key), answer)

    def _both_play(self, draw: random.Random) -> Assignment:
        while True:
            one, other = draw.sample(list(self.films), 2)
            both = frozenset(self.films[one]["cast"]) & frozenset(self.films[other]["cast"])
            if both:
                break
        first, second = self.films[one]["title"], self.films[other]["title"]
        calls = (
            *(self._find(one), PlannedCall("cast", {"film_id": one})),
            *(self._find(other), PlannedCall("cast", {"film_id": other})),
        )
        prompt = f'Who plays in both "{first}" and "{second}"? Answer with all names, parted by commas.'
        return Assignment(prompt, "two films", calls, both)

    def _best_of(self, draw: random.Random) -> Assignment:
        while True:
            name = draw.choice(list(self.people.values()))
            keys = self._played(name)
            ratings = [self.films[key]["rating"] for key in keys]
            if 2 <= len(keys) <= 8 and ratings.count(max(ratings)) == 1:
                break
        best = max(keys, key=lambda key: self.films[key]["rating"])
        prompt = f"Which of the films in which {name} plays has the highest rating? Answer with its title."
        return Assignment(prompt, "films of a person", self._to_films(name, keys), self.films[best]["title"])

    def _count(self, draw: random.Random) -> Assignment:
        while True:
            name = draw.choice(list(self.people.values()))
            keys = self._played(name)
            if 3 <= len(keys) <= 8:
                break
        genre = draw.choice(sorted({genre for key in keys for genre in self.films[key]["genres"]}))
        year = draw.randint(1985, 2015)
        count = sum(genre in self.films[key]["genres"] and self.films[key]["year"] >= year for key in keys)
        prompt = f"In how many films of the genre {genre} from {year} or later does {name} play? Answer with a number."
        return Assignment(prompt, "count", self._to_films(name, keys), float(count))

    def _takings(self, draw: random.Random) -> Assignment:
        while True:
            key = draw.choice(list(self.films))
            name = self.films[key]["director"]
            keys = self._directed(name)
            if 2 <= len(keys) <= 8:
                break
        title = self.films[key]["title"]
        prompt = (
            f'How many millions did all films together take in that have the same director as "{title}", that film '
            f"included? Answer with a number."
        )
        calls = (*self._to_film(key), *self._to_films(name, [other for other in keys if other != key]))
        return Assignment(
            prompt, "by way of a film", calls, math.fsum(self.films[other]["takings_m"] for other in keys)
        )

    def _find(self, key: int) -> PlannedCall:
        return PlannedCall("find_film", {"title": self.films[key]["title"]})

    def _to_film(self, key: int) -> tuple[PlannedCall, ...]:
        return (self._find(key), PlannedCall("film", {"film_id": key}))

    def _to_films(self, name: str, keys: list[int]) -> tuple[PlannedCall, ...]:
        person = next(key for key, known in self.people.items() if known == name)
        return (
            PlannedCall("find_person", {"name": name}),
            PlannedCall("films_of", {"person_id": person}),
            *(PlannedCall("film", {"film_id": key}) for key in keys),
        )

    def _film(self, film_id: int) -> dict[str, Any]:
        if film_id not in self.films:
            raise ToolError(f"there is no film {film_id}")
        return self.films[film_id]

    def _directed(self, name: str) -> list[int]:
        return [key for key, film in self.films.items() if film["director"] == name]

    def _played(self, name: str) -> list[int]:
        return [key for key, film in self.films.items() if name in film["cast"]]
