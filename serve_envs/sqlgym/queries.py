"""Running an agent's SQL: it can read the tables, within limits, and nothing else."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

from rllib_agentic.tools import ToolError

_INSTRUCTIONS_A_CALL = 10_000
_MOST_CALLS = 2_000
_MOST_ROWS = 5_000
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 20_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
}
# Whatever depends on the clock, on chance or on the machine is left out: equal actions give equal observations.
_FUNCTIONS = frozenset(
    word
    for words in (
        "abs avg char coalesce count cume_dist dense_rank first_value format glob group_concat hex ifnull iif instr",
        "lag last_value lead length like lower ltrim max min nth_value ntile nullif percent_rank printf quote rank",
        "replace round row_number rtrim sign substr substring sum total trim typeof unicode upper",
    )
    for word in words.split()
)


class Rows(NamedTuple):
    """What a query gave."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


class Reader:
    """One read-only connection.

    A query may take 20 million steps of SQLite's machine (ten times what the right queries take; counted, so that the
    same query always ends the same way) and give 5000 rows.

    Args:
        path: the database file.
    """

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
        self._connection.execute("PRAGMA mmap_size = 100000000")
        self._connection.execute("PRAGMA cache_size = -256")
        self._connection.execute("PRAGMA temp_store = MEMORY")
        for limit, value in _LIMITS.items():
            self._connection.setlimit(limit, value)
        self._connection.set_authorizer(_authorize)
        self._connection.set_progress_handler(self._count, _INSTRUCTIONS_A_CALL)
        self._calls = 0

    def run(self, sql: str) -> Rows:
        """Run one query.

        Raises:
            ToolError: it does not parse, reads what it may not, or takes too long; in the agent's words.
        """
        self._calls = 0
        try:
            cursor = self._connection.execute(sql.strip().rstrip(";"))
            rows = cursor.fetchmany(_MOST_ROWS + 1)
            columns = tuple(column[0] for column in cursor.description or ())
            cursor.close()
        except (sqlite3.Error, sqlite3.Warning, ValueError, UnicodeEncodeError) as error:
            if self._calls > _MOST_CALLS:
                raise ToolError("the query takes too many steps; make it simpler") from error
            raise ToolError(str(error)) from error
        if not columns:
            raise ToolError("that is no query; begin with SELECT or WITH")
        if len(rows) > _MOST_ROWS:
            raise ToolError(f"the query gives more than {_MOST_ROWS} rows; use LIMIT or an aggregate")
        return Rows(columns, tuple(rows))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _count(self) -> int:
        self._calls += 1
        return int(self._calls > _MOST_CALLS)


def _authorize(action: int, one: str | None, two: str | None, database: str | None, trigger: str | None) -> int:
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (two or "").lower() in _FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def same_result(one: Rows, other: Rows, *, ordered: bool) -> bool:
    """Whether two results hold the same rows; the columns' names do not matter, their order does.

    Numbers are the same within one part in a million.

    Args:
        one: a result.
        other: another.
        ordered: whether the order of the rows matters.
    """
    if len(one.rows) != len(other.rows) or len(one.columns) != len(other.columns):
        return False
    left, right = ([tuple(map(_plain, row)) for row in result.rows] for result in (one, other))
    if not ordered:
        left, right = sorted(left, key=_sortable), sorted(right, key=_sortable)
    return all(_same(a, b) for row, twin in zip(left, right, strict=True) for a, b in zip(row, twin, strict=True))


def _plain(value: object) -> object:
    return float(value) if isinstance(value, int | float) else value


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-6 * max(1.0, abs(one), abs(other))
    return one == other


def _sortable(row: tuple[object, ...]) -> list[tuple[str, object]]:
    # Rounded, so that two numbers that count as the same do not sort apart.
    return [(type(value).__name__, round(value, 4) if isinstance(value, float) else value or 0) for value in row]
