"""A library: papers, who wrote them, where they appeared, and what they cite."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from rllib_agentic.tools import ToolError, tool
from serve_envs.toolbox.assignment import Assignment, PlannedCall
from serve_envs.toolbox.names import people, words

_PAPERS, _AUTHORS = 70, 30


class Academia:
    """Seventy invented papers by thirty authors; a paper cites earlier ones.

    Args:
        draw: decides everything.
    """

    def __init__(self, draw: random.Random) -> None:
        self.authors = {900 + number: name for number, name in enumerate(people(draw, _AUTHORS))}
        names = [f"{m} {a} for {f}" for m in words("methods") for a in words("aims") for f in words("fields")]
        years = sorted(draw.randint(1995, 2023) for _ in range(_PAPERS))
        self.papers: dict[int, dict[str, Any]] = {}
        for number, (title, year) in enumerate(zip(draw.sample(names, _PAPERS), years, strict=True)):
            earlier = [key for key, paper in self.papers.items() if paper["year"] < year]
            self.papers[3000 + number] = {
                "title": title,
                "year": year,
                "venue": draw.choice(words("venues")),
                "authors": draw.sample(list(self.authors), draw.randint(1, 4)),
                "references": sorted(draw.sample(earlier, min(len(earlier), draw.randint(1, 6)))),
            }

    def snapshot(self) -> dict[str, Any]:
        """Nothing can be changed."""
        return {}

    def words(self) -> list[Any]:
        """Titles, names and numbers."""
        return [paper["title"] for paper in self.papers.values()] + [
            *self.authors.values(),
            *self.papers,
            *self.authors,
        ]

    @tool
    def find_paper(self, title: str) -> dict[str, int]:
        """Find a paper by its title; gives its id.

        Args:
            title: the whole title, in any case.
        """
        key = next(
            (key for key, paper in self.papers.items() if paper["title"].casefold() == title.strip().casefold()), None
        )
        if key is None:
            raise ToolError(f"there is no paper {title!r:.80}")
        return {"id": key}

    @tool
    def paper(self, paper_id: int) -> dict[str, Any]:
        """Look up a paper: title, year, venue, ids of its authors, ids of the papers that it cites.

        Args:
            paper_id: its id.
        """
        if paper_id not in self.papers:
            raise ToolError(f"there is no paper {paper_id}")
        return self.papers[paper_id]

    @tool
    def cited_by(self, paper_id: int) -> list[int]:
        """List the ids of the papers that cite a paper.

        Args:
            paper_id: its id.
        """
        if paper_id not in self.papers:
            raise ToolError(f"there is no paper {paper_id}")
        return self._cited_by(paper_id)

    @tool
    def find_author(self, name: str) -> dict[str, int]:
        """Find an author by name; gives the id.

        Args:
            name: the full name.
        """
        key = next((key for key, known in self.authors.items() if known.casefold() == name.strip().casefold()), None)
        if key is None:
            raise ToolError(f"there is no author {name!r:.60}")
        return {"id": key}

    @tool
    def author(self, author_id: int) -> dict[str, Any]:
        """Look up an author: name, and ids of the papers.

        Args:
            author_id: the author's id.
        """
        if author_id not in self.authors:
            raise ToolError(f"there is no author {author_id}")
        return {"name": self.authors[author_id], "papers": self._papers_of(author_id)}

    def assignments(self, draw: random.Random) -> Iterator[Assignment]:
        """Endless tasks in this world, all kinds in turn."""
        while True:
            yield self._fact(draw)
            yield self._count(draw)
            yield self._coauthors(draw)
            yield self._most_cited(draw)
            yield self._common_citation(draw)

    def _fact(self, draw: random.Random) -> Assignment:
        key = draw.choice(list(self.papers))
        paper = self.papers[key]
        words, how, answer, more = draw.choice(
            [
                ("In which venue did {} appear?", "the venue's name", paper["venue"], ()),
                ("How often is {} cited?", "a number", float(len(self._cited_by(key))), ()),
                (
                    "Who wrote {}?",
                    "all names, parted by commas",
                    frozenset(self.authors[author] for author in paper["authors"]),
                    tuple(PlannedCall("author", {"author_id": author}) for author in paper["authors"]),
                ),
            ]
        )
        look = PlannedCall("cited_by" if how == "a number" else "paper", {"paper_id": key})
        prompt = f"{words.format(chr(34) + paper['title'] + chr(34))} Answer with {how}."
        return Assignment(prompt, "one paper", (self._find(key), look, *more), answer)

    def _count(self, draw: random.Random) -> Assignment:
        author, keys = self._busy(draw)
        venue = self.papers[draw.choice(keys)]["venue"]
        count = sum(self.papers[key]["venue"] == venue for key in keys)
        prompt = f"How many papers did {self.authors[author]} publish in {venue}? Answer with a number."
        return Assignment(prompt, "papers of an author", self._to_papers(author, keys), float(count))

    def _coauthors(self, draw: random.Random) -> Assignment:
        author, keys = self._busy(draw)
        year = draw.choice([self.papers[key]["year"] for key in keys])
        others = {
            other for key in keys if self.papers[key]["year"] >= year for other in self.papers[key]["authors"]
        } - {author}
        if not others:
            return self._count(draw)
        prompt = (
            f"With whom did {self.authors[author]} write papers that appeared in {year} or later? Answer with all "
            f"names, parted by commas."
        )
        calls = (
            *self._to_papers(author, keys),
            *(PlannedCall("author", {"author_id": other}) for other in sorted(others)),
        )
        return Assignment(prompt, "coauthors", calls, frozenset(self.authors[other] for other in others))

    def _most_cited(self, draw: random.Random) -> Assignment:
        for _ in range(100):
            author, keys = self._busy(draw)
            counts = [len(self._cited_by(key)) for key in keys]
            if counts.count(max(counts)) == 1:
                break
        else:
            return self._count(draw)
        best = max(keys, key=lambda key: len(self._cited_by(key)))
        prompt = f"In which year did the most cited paper of {self.authors[author]} appear? Answer with a number."
        calls = (
            PlannedCall("find_author", {"name": self.authors[author]}),
            PlannedCall("author", {"author_id": author}),
            *(PlannedCall("cited_by", {"paper_id": key}) for key in keys),
            PlannedCall("paper", {"paper_id": best}),
        )
        return Assignment(prompt, "most cited", calls, float(self.papers[best]["year"]))

    def _common_citation(self, draw: random.Random) -> Assignment:
        for _ in range(400):
            one, other = draw.sample(list(self.papers), 2)
            both = set(self._cited_by(one)) & set(self._cited_by(other))
            if len(both) == 1:
                break
        else:
            return self._count(draw)
        key = both.pop()
        first, second = self.papers[one]["title"], self.papers[other]["title"]
        calls = (
            *(self._find(one), PlannedCall("cited_by", {"paper_id": one})),
            *(self._find(other), PlannedCall("cited_by", {"paper_id": other})),
            PlannedCall("paper", {"paper_id": key}),
        )
        prompt = f'Which paper cites both "{first}" and "{second}"? Answer with its title.'
        return Assignment(prompt, "common citation", calls, self.papers[key]["title"])

    def _busy(self, draw: random.Random) -> tuple[int, list[int]]:
        while True:
            author = draw.choice(list(self.authors))
            keys = self._papers_of(author)
            if 3 <= len(keys) <= 8:
                return author, keys

    def _find(self, key: int) -> PlannedCall:
        return PlannedCall("find_paper", {"title": self.papers[key]["title"]})

    def _to_papers(self, author: int, keys: list[int]) -> tuple[PlannedCall, ...]:
        return (
            PlannedCall("find_author", {"name": self.authors[author]}),
            PlannedCall("author", {"author_id": author}),
            *(PlannedCall("paper", {"paper_id": key}) for key in keys),
        )

    def _cited_by(self, paper_id: int) -> list[int]:
        return [key for key, paper in self.papers.items() if paper_id in paper["references"]]

    def _papers_of(self, author_id: int) -> list[int]:
        return [key for key, paper in self.papers.items() if author_id in paper["authors"]]
