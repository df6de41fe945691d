"""The tasks: chains of two to four look-ups over the World Factbook, and the questions of FanOutQA."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from serve_envs.searchqa.countries import FACTS, LINKS, Country, countries
from serve_envs.searchqa.texts import fanoutqa_questions, found_facts, told
from serve_envs.splits import Counts, fill_splits

_DRAWS = 200_000
_MOST_PER_END = 40
_COMMON = ("EUR", "USD")  # shared by too many countries to be worth a question
_FANOUT_SHARES = (("train", 7), ("validation", 1), ("test", 2))


@dataclass(frozen=True, slots=True)
class Question:
    """One task.

    Attributes:
        text: the question.
        accepted: answers that count as right; a list is written ``a; b``, in any order.
        category: ``2 hops``, ``3 hops``, ``4 hops`` or ``fanout``.
        chain: what it asks about; questions with one chain are in one split.
        lookups: a query and the title of the page to open, for each look-up: what the expert does.
    """

    text: str
    accepted: tuple[str, ...]
    category: str
    chain: str
    lookups: tuple[tuple[str, str], ...]


@lru_cache(maxsize=4)
def make_splits(counts: Counts, fanout: bool) -> dict[str, tuple[Question, ...]]:
    """The tasks of every split; a chain is in one split only.

    Args:
        counts: ``(split, number of generated questions)``, a third of each number of hops.
        fanout: add the 310 questions of FanOutQA, 70 / 10 / 20 % of them.

    Raises:
        InputError: there are not that many different questions.
    """
    splits = fill_splits("searchqa", _drawn(), counts, lambda question: question.chain)
    if fanout:
        names, weights = zip(*((name, weight) for name, weight in _FANOUT_SHARES if name in splits), strict=True)
        for question in _fanout():
            split = random.Random(f"searchqa fanout {question.chain}").choices(names, weights)[0]
            splits[split] = (*splits[split], question)
    return splits


def _drawn() -> Iterator[Question]:
    known = countries()
    names = sorted(known)
    telling = _telling(known)
    draw = random.Random("searchqa questions")
    ends: Counter[str] = Counter()
    for number in range(_DRAWS):
        question = _draw_one(draw, known, names, telling, hops=2 + number % 3)
        if question is None:
            continue
        end = question.lookups[-1][1].partition(":")[0]
        ends[end] += 1
        if ends[end] <= _MOST_PER_END:  # most trade leads to a few countries: guessing one must not pay
            yield question


def _draw_one(
    draw: random.Random,
    known: Mapping[str, Country],
    names: list[str],
    telling: Mapping[str, frozenset[str]],
    hops: int,
) -> Question | None:
    """One question, or None where the drawn way leads nowhere. A hop is one page that has to be read."""
    at = known[draw.choice(names)]
    described = hops == 4 or (hops == 3 and draw.random() < 0.5)  # by a fact instead of its name: a hop more
    phrase, lookups, path, visited = at.name, [], [at.name], {at.name}
    if described:
        kind = draw.choice(sorted(kind for kind, fact in FACTS.items() if fact.named))
        value = at.facts.get(kind)
        if value is None or value not in telling[kind]:
            return None
        phrase = FACTS[kind].named.format(value)
        lookups.append((f"{FACTS[kind].field} {value}", f"{at.name}: {FACTS[kind].field}"))
        path.append(kind)
    for _ in range(hops - 1 - described):
        kind = draw.choice(sorted(LINKS))
        to = at.links.get(kind)
        if to is None or to in visited or to not in known:
            return None
        lookups.append((f"{at.name} {LINKS[kind].field}", f"{at.name}: {LINKS[kind].field}"))
        phrase = LINKS[kind].phrase.format(phrase)
        path.append(kind)
        at = known[to]
        visited.add(to)
    answerable = sorted(kind for kind, value in at.facts.items() if value not in _COMMON)
    if not answerable:
        return None
    asked = draw.choice(answerable)
    lookups.append((f"{at.name} {FACTS[asked].field}", f"{at.name}: {FACTS[asked].field}"))
    return Question(
        text=FACTS[asked].asked.format(phrase),
        accepted=(at.facts[asked],),
        category=f"{hops} hops",
        chain=" > ".join(path),
        lookups=tuple(lookups),
    )


def _telling(known: Mapping[str, Country]) -> Mapping[str, frozenset[str]]:
    """For each kind of fact the values that only one country has."""
    counts = {kind: Counter(one.facts[kind] for one in known.values() if kind in one.facts) for kind in FACTS}
    return {kind: frozenset(value for value, count in values.items() if count == 1) for kind, values in counts.items()}


def _fanout() -> Iterator[Question]:
    for raw in fanoutqa_questions():
        lookups = {(part["question"], part["evidence"]["title"]): None for part in found_facts(raw)}
        yield Question(
            text=raw["question"],
            accepted=(told(raw["answer"]),),
            category="fanout",
            chain=raw["id"],
            lookups=tuple(lookups),
        )
