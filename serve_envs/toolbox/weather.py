"""Weather: daily records and forecasts of some cities."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from rllib_agentic.tools import ToolError, tool
from serve_envs.toolbox.assignment import Assignment, PlannedCall

_CITIES = {
    "Amsterdam": (52.37, 4.90),
    "Athens": (37.98, 23.73),
    "Berlin": (52.52, 13.41),
    "Brussels": (50.85, 4.35),
    "Cairo": (30.04, 31.24),
    "Dublin": (53.35, -6.26),
    "Helsinki": (60.17, 24.94),
    "Istanbul": (41.01, 28.98),
    "Lagos": (6.52, 3.38),
    "Lima": (-12.05, -77.04),
    "Lisbon": (38.72, -9.14),
    "Madrid": (40.42, -3.70),
    "Mumbai": (19.08, 72.88),
    "Nairobi": (-1.29, 36.82),
    "Oslo": (59.91, 10.75),
    "Paris": (48.86, 2.35),
    "Prague": (50.08, 14.44),
    "Quito": (-0.18, -78.47),
    "Rome": (41.90, 12.50),
    "Seoul": (37.57, 126.98),
    "Tallinn": (59.44, 24.75),
    "Tokyo": (35.68, 139.69),
    "Vienna": (48.21, 16.37),
    "Warsaw": (52.23, 21.01),
}
_PAST_DAYS, _FUTURE_DAYS, _MOST_DAYS_A_CALL = 21, 7, 7


class Weather:
    """Ten cities, three weeks of records and a week of forecasts, around a day that is today.

    Args:
        draw: decides cities, day and weather.
    """

    def __init__(self, draw: random.Random) -> None:
        self.cities = sorted(draw.sample(sorted(_CITIES), 10))
        self.today = date(2022, 1, 1) + timedelta(days=draw.randrange(900))
        self.records: dict[str, dict[date, dict[str, float]]] = {}
        for city in self.cities:
            season = math.cos((self.today.timetuple().tm_yday - 200) / 365 * 2 * math.pi)
            latitude = _CITIES[city][0]
            mean = 28 - abs(latitude) * 0.4 + season * latitude / 6
            self.records[city] = {}
            for offset in range(-_PAST_DAYS, _FUTURE_DAYS + 1):
                mean += draw.gauss(0, 1)
                high = round(mean + draw.uniform(2, 6), 1)
                rain = round(draw.expovariate(1 / 6), 1) if draw.random() < 0.4 else 0.0
                self.records[city][self.today + timedelta(days=offset)] = {
                    "high_c": high,
                    "low_c": round(high - draw.uniform(4, 11), 1),
                    "rain_mm": rain,
                    "wind_kmh": round(draw.uniform(2, 45), 1),
                }

    def snapshot(self) -> dict[str, Any]:
        """Nothing can be changed."""
        return {}

    def words(self) -> list[Any]:
        """Cities and dates."""
        return [*self.cities, *(day.isoformat() for day in self.records[self.cities[0]])]

    @tool
    def current_date(self) -> str:
        """Tell today's date, as YYYY-MM-DD."""
        return self.today.isoformat()

    @tool
    def list_cities(self) -> list[str]:
        """List the cities that have weather data."""
        return self.cities

    @tool
    def distance(self, city: str, other: str) -> float:
        """Tell the distance between two cities in kilometres.

        Args:
            city: a city.
            other: another city.
        """
        return _distance(self._known(city), self._known(other))

    @tool
    def weather(self, city: str, start: str, end: str) -> dict[str, dict[str, float]]:
        """Look up the daily weather of a city, recorded or forecast; at most seven days a call.

        Args:
            city: a city.
            start: first day, as YYYY-MM-DD.
            end: last day, as YYYY-MM-DD.
        """
        first, last = _day(start), _day(end)
        days = [day for day in self.records[self._known(city)] if first <= day <= last]
        if not days:
            raise ToolError(f"there are no data from {start} to {end}")
        if (last - first).days >= _MOST_DAYS_A_CALL:
            raise ToolError(f"from {start} to {end} are more than {_MOST_DAYS_A_CALL} days")
        return {day.isoformat(): self.records[city][day] for day in days}

    def assignments(self, draw: random.Random) -> Iterator[Assignment]:
        """Endless tasks in this world, all kinds in turn."""
        while True:
            yield self._on_a_day(draw)
            yield self._warmest(draw)
            yield self._rainy_days(draw)
            yield self._nearest(draw)
            yield self._within(draw)

    def _on_a_day(self, draw: random.Random) -> Assignment:
        city = draw.choice(self.cities)
        offset, name = draw.choice([(-1, "yesterday"), (0, "today"), (1, "tomorrow"), (2, "the day after tomorrow")])
        field, words = draw.choice(
            [("high_c", "highest temperature"), ("low_c", "lowest temperature"), ("wind_kmh", "wind speed")]
        )
        day = self.today + timedelta(days=offset)
        return Assignment(
            prompt=f"What is the {words} in {city} for {name}? Answer with a number.",
            kind="one city",
            calls=(PlannedCall("current_date", {}), self._look(city, day, day)),
            answer=self.records[city][day][field],
        )

    def _warmest(self, draw: random.Random) -> Assignment:
        cities = draw.sample(self.cities, draw.randint(3, 5))
        day = self.today + timedelta(days=draw.randint(-10, _FUTURE_DAYS))
        while len({self.records[city][day]["high_c"] for city in cities}) < len(cities):
            day = self.today + timedelta(days=draw.randint(-10, _FUTURE_DAYS))
        return Assignment(
            prompt=f"Which of {', '.join(cities)} has the highest temperature on {day}? Answer with the city's name.",
            kind="compare",
            calls=tuple(self._look(city, day, day) for city in cities),
            answer=max(cities, key=lambda city: self.records[city][day]["high_c"]),
        )

    def _rainy_days(self, draw: random.Random) -> Assignment:
        city = draw.choice(self.cities)
        length = draw.randint(8, 20)
        first = self.today - timedelta(days=draw.randint(length, _PAST_DAYS))
        last = first + timedelta(days=length - 1)
        calls = [
            self._look(city, start, min(last, start + timedelta(days=_MOST_DAYS_A_CALL - 1)))
            for start in (first + timedelta(days=offset) for offset in range(0, length, _MOST_DAYS_A_CALL))
        ]
        wet = sum(first <= day <= last and record["rain_mm"] > 0 for day, record in self.records[city].items())
        return Assignment(
            prompt=(
                f"On how many days from {first} to {last}, both included, did it rain in {city}? Answer with a number."
            ),
            kind="long time",
            calls=tuple(calls),
            answer=float(wet),
        )

    def _nearest(self, draw: random.Random) -> Assignment:
        city = draw.choice(self.cities)
        others = [other for other in self.cities if other != city]
        near = min(others, key=lambda other: _distance(city, other))
        days = draw.randint(3, 7)
        first, last = self.today - timedelta(days=days), self.today - timedelta(days=1)
        highs = [self.records[near][first + timedelta(days=offset)]["high_c"] for offset in range(days)]
        return Assignment(
            prompt=(
                f"Of the cities with weather data, take the one nearest to {city}, but not {city} itself. What was the "
                f"average of its highest temperatures over the {days} days that ended yesterday? Answer with a number, "
                f"rounded to two places."
            ),
            kind="nearest",
            calls=(
                PlannedCall("current_date", {}),
                PlannedCall("list_cities", {}),
                *(PlannedCall("distance", {"city": city, "other": other}) for other in others),
                self._look(near, first, last),
            ),
            answer=round(math.fsum(highs) / days, 2),
        )

    def _within(self, draw: random.Random) -> Assignment:
        city = draw.choice(self.cities)
        others = sorted((other for other in self.cities if other != city), key=lambda other: _distance(city, other))
        count = draw.randint(2, 4)
        limit = (_distance(city, others[count - 1]) + _distance(city, others[count])) // 2
        day = self.today - timedelta(days=1)
        near = others[:count]
        windiest = max(near, key=lambda other: (self.records[other][day]["wind_kmh"], other))
        return Assignment(
            prompt=(
                f"Which city less than {limit:.0f} km from {city}, other than {city} itself, had the strongest wind "
                f"yesterday? Answer with the city's name."
            ),
            kind="within reach",
            calls=(
                PlannedCall("current_date", {}),
                PlannedCall("list_cities", {}),
                *(PlannedCall("distance", {"city": city, "other": other}) for other in sorted(others)),
                *(self._look(other, day, day) for other in near),
            ),
            answer=windiest,
        )

    def _look(self, city: str, start: date, end: date) -> PlannedCall:
        return PlannedCall("weather", {"city": city, "start": start.isoformat(), "end": end.isoformat()})

    def _known(self, city: str) -> str:
        if city not in self.cities:
            raise ToolError(f"there are no data of {city!r:.60}; see list_cities")
        return city


def _distance(city: str, other: str) -> float:
    """Great-circle distance in whole kilometres (haversine, radius 6371 km)."""
    (lat, lon), (lat_2, lon_2) = (tuple(map(math.radians, _CITIES[name])) for name in (city, other))
    half = math.sin((lat_2 - lat) / 2) ** 2 + math.cos(lat) * math.cos(lat_2) * math.sin((lon_2 - lon) / 2) ** 2
    return float(round(2 * 6371 * math.asin(math.sqrt(half))))


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ToolError(f"{text!r:.40} is no date; write YYYY-MM-DD") from error
