"""Kinds of questions, and what the places in them may be filled with."""

from __future__ import annotations

import calendar
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import yaml


class Template(NamedTuple):
    """One kind of question.

    Attributes:
        category: what it takes to answer it.
        text: the question, with ``{places}``.
        sql: a query that answers it, with the same places.
        ordered: whether the question asks for an order of rows.
    """

    category: str
    text: str
    sql: str
    ordered: bool = False


@cache
def templates() -> tuple[Template, ...]:
    """All kinds, as in ``templates.yaml``."""
    content = files("serve_envs.sqlgym").joinpath("templates.yaml").read_text(encoding="utf-8")
    return tuple(Template(**one) for one in yaml.safe_load(content))


MONTHS = tuple(calendar.month_name)[1:]

_FAR = "ORD ATL LAX BOS MCO CLT SFO FLL MIA DCA DTW DFW RDU TPA DEN IAH MSP PBI BNA LAS SJU PHX BUF STL CLE PIT SEA MSY"
_NEAR = "CMH BWI ROC MKE CVG IND SAN AUS SYR BTV RIC JAX PWM"

PLACES: Mapping[str, Sequence[object]] = {
    "origin": ("EWR", "JFK", "LGA"),
    "month": range(1, 13),
    "day": range(1, 29),
    "hour": range(6, 22),
    "carrier": ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL"),
    "dest": (*_FAR.split(), *_NEAR.split()),
    "maker": ("BOEING", "AIRBUS", "EMBRAER", "BOMBARDIER INC", "MCDONNELL DOUGLAS", "CANADAIR"),
    "year": range(1990, 2013),
    "top": (3, 4, 5, 6, 8, 10),
    "many": (20, 50, 100, 200, 500),
    "delay": (15, 30, 60, 90, 120, 180),
    "miles": (500, 1000, 1500, 2000),
    "seats": (20, 55, 100, 150, 200),
    "wind": (15, 20, 25, 30),
    "altitude": (200, 300, 500, 800, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000),
    "latitude": range(30, 49),
    "zone": ("America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles", "America/Anchorage"),
}
"""What each place may be filled with."""
