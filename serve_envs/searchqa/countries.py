"""What questions are made of: facts about countries that have one short answer, read from the World Factbook."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from serve_envs.searchqa.texts import factbook_countries, plain

_BORDER = re.compile(r"([^\d;()]+?)\s*(?:\([^)]*\))?\s+([\d,.]+) km")
_PARTNER = re.compile(r"([A-Za-z][^\d,(]*?)\s+([\d.]+)%")
_ABBREVIATIONS = {"usa": "united states", "us": "united states", "uk": "united kingdom", "uae": "united arab emirates"}


@dataclass(frozen=True, slots=True)
class Fact:
    """A kind of fact.

    Attributes:
        field: the page that tells it, ``COUNTRY: FIELD``.
        asked: the question for it, with ``{}`` for the country.
        named: how a country is described by it, with ``{}`` for the value; "" where it does not tell countries apart.
    """

    field: str
    asked: str
    named: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """A way from one country to another.

    Attributes:
        field: the page that tells it.
        phrase: describes the other country, with ``{}`` for the first.
    """

    field: str
    phrase: str


_PREFIX = "civil aircraft registration country code prefix"

FACTS: Mapping[str, Fact] = {
    "capital": Fact("Capital", "What is the capital of {}?", "the country whose capital is {}"),
    "code": Fact(
        "Internet country code",
        "What is the internet country code of {}?",
        "the country with the internet country code {}",
    ),
    "highest": Fact("Elevation", "What is the highest point of {}?", "the country whose highest point is {}"),
    "currency": Fact("Exchange rates", "What is the three-letter code of the currency of {}?"),
    "aircraft": Fact(_PREFIX.capitalize(), f"What is the {_PREFIX} of {{}}?", f"the country whose {_PREFIX} is {{}}"),
}

LINKS: Mapping[str, Link] = {
    "longest": Link("Land boundaries", "the country with which {} shares its longest land border"),
    "shortest": Link("Land boundaries", "the country with which {} shares its shortest land border"),
    "exports": Link("Exports - partners", "the country that takes the largest share of the exports of {}"),
    "imports": Link("Imports - partners", "the country that supplies the largest share of the imports of {}"),
}


@dataclass(frozen=True, slots=True)
class Country:
    """A country with its short facts and the countries that it leads to; what is missing or not unique is left out."""

    name: str
    facts: Mapping[str, str]
    links: Mapping[str, str]


@cache
def countries() -> Mapping[str, Country]:
    """All countries by name."""
    raw = dict(factbook_countries())
    names = _Names(raw)
    return {
        name: Country(name, dict(_facts(fields)), {kind: to for kind, to in _links(fields, names) if to != name})
        for name, fields in raw.items()
    }


class _Names:
    """Countries by any of their names."""

    def __init__(self, raw: Mapping[str, Mapping[str, Any]]) -> None:
        self._by_form: dict[str, str] = {}
        for name, fields in raw.items():
            for form, value in fields.get("Country name", {}).items():
                if "conventional" in form and isinstance(value, dict):
                    self._by_form.setdefault(_form(plain(value.get("text", ""))), name)
            self._by_form[_form(name)] = name

    def find(self, text: str) -> str | None:
        form = _form(text)
        return self._by_form.get(_ABBREVIATIONS.get(form, form))


def _form(name: str) -> str:
    return name.strip().casefold().removeprefix("the ").strip()


def _text(fields: Mapping[str, Any], *path: str) -> str:
    value: Any = fields
    for part in (*path, "text"):
        value = value.get(part, {}) if isinstance(value, dict) else {}
    return plain(value) if isinstance(value, str) else ""


def _facts(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    patterns: dict[str, tuple[str, str]] = {
        "capital": (_text(fields, "Capital", "name"), r"[^\d;(),/]{3,40}"),
        "code": (_text(fields, "Internet country code"), r"\.[a-z]{2}"),
        "highest": (re.sub(r"\s+[\d,.]+ m\b.*$", "", _text(fields, "Elevation", "highest point")), r"[^\d;(),/]{3,40}"),
        "aircraft": (_text(fields, "Civil aircraft registration country code prefix"), r"[A-Z0-9]{2}"),
    }
    for kind, (value, pattern) in patterns.items():
        if re.fullmatch(pattern, value) and "unnamed" not in value.casefold():
            yield kind, value
    if currency := re.search(r"\(([A-Z]{3})\)", _text(fields, "Exchange rates", "Currency")):
        yield "currency", currency[1]


def _links(fields: Mapping[str, Any], names: _Names) -> Iterator[tuple[str, str]]:
    borders = [
        (float(length.replace(",", "")), names.find(name))
        for name, length in _BORDER.findall(_text(fields, "Land boundaries", "border countries"))
    ]
    if len(borders) > 1:
        for kind, wanted in (("longest", max), ("shortest", min)):
            yield from _only(kind, borders, wanted)
    for kind, field in (("exports", "Exports - partners"), ("imports", "Imports - partners")):
        shares = [(float(share), names.find(name)) for name, share in _PARTNER.findall(_text(fields, field))]
        if shares:
            yield from _only(kind, shares, max)


def _only(
    kind: str, measured: list[tuple[float, str | None]], wanted: Callable[..., tuple[float, str | None]]
) -> Iterator[tuple[str, str]]:
    extreme, name = wanted(measured, key=lambda pair: pair[0])
    once = sum(value == extreme for value, _ in measured) == 1 == sum(other == name for _, other in measured)
    if name is not None and once:
        yield kind, name
