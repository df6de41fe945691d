"""Exact match and F1 of short answers, after the usual normalisation."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_WORD = re.compile(r"[^\w\s.;:]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")


def normalised(text: str) -> str:
    """Lower case without accents, articles, punctuation and spare spaces; numbers without thousands commas.

    Example:
        >>> normalised("The São Tomé,  and 1,234.50 (USD)!")
        'sao tome and 1234.50 usd'
    """
    text = _THOUSANDS.sub("", text.casefold())
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    words = _ARTICLE.sub(" ", _NO_WORD.sub(" ", text)).split()
    return " ".join(word.strip(".") if not word[:-1].isdigit() else word.rstrip(".") for word in words)


def exact_match(answer: str, accepted: tuple[str, ...]) -> bool:
    """Whether an answer is one of the accepted ones; the parts of a list ``a; b`` may come in any order.

    Example:
        >>> exact_match("Left: Ann; right: Bo", ("right: Bo; left: Ann",)), exact_match("Bern", ("Berne",))
        (True, False)
    """
    return _parts(answer) in [_parts(one) for one in accepted]


def f1(answer: str, accepted: tuple[str, ...]) -> float:
    """Harmonic mean of precision and recall over words, for the accepted answer that fits best.

    Example:
        >>> f1("the city of Bern", ("Bern",))
        0.5
    """
    return max(_f1(_words(answer), _words(one)) for one in accepted)


def _parts(answer: str) -> frozenset[str]:
    parts = (normalised(part).replace(":", " ").split() for part in answer.split(";"))
    return frozenset(" ".join(words) for words in parts if words)


def _words(answer: str) -> Counter[str]:
    return Counter(normalised(answer).replace(";", " ").replace(":", " ").split())


def _f1(one: Counter[str], other: Counter[str]) -> float:
    common = sum((one & other).values())
    total = sum(one.values()) + sum(other.values())
    return 2 * common / total if total else float(one == other)
