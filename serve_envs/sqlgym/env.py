"""Questions over a database, answered by SQL."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence

from rllib_agentic.envs.env import EnvSchema, Observation
from rllib_agentic.errors import InputError
from rllib_agentic.tools import Grade, ToolEnv, ToolError, ToolUse, tool
from rllib_agentic.trajectory.message import Message
from serve_envs.call_text import write_call
from serve_envs.sqlgym.database import TABLES, database_path
from serve_envs.sqlgym.queries import Reader, Rows, same_result
from serve_envs.sqlgym.tasks import CATEGORIES, Question, make_splits, splits_hash

_SYSTEM = (
    "You answer questions about all flights that left New York City in 2013, by SQL on an SQLite database. Look at "
    "the tables and try queries with the tools; then give your answer, one SQL query whose result is exactly what was "
    "asked for, between <answer> and </answer>."
)
_FENCE = re.compile(r"```(?:sql|sqlite)?\s*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_SHOWN_ROWS = 20


class SqlGym(ToolEnv):
    """Answer a question by a query; the result is held against that of a right query, row by row.

    Args:
        categories: which questions: some of ``look up``, ``aggregate``, ``group and rank``, ``join``, ``nested``.
        show_tables: whether the question comes with the tables' columns.
        use: how tools are called.

    Raises:
        InputError: an unknown category, or the data are not installed.
    """

    def __init__(
        self, categories: Sequence[str] = CATEGORIES, show_tables: bool = True, use: ToolUse | None = None
    ) -> None:
        if not categories or not set(categories) <= set(CATEGORIES):
            raise InputError(f"sqlgym: categories must be some of {', '.join(CATEGORIES)}, got {list(categories)}")
        self._categories = tuple(category for category in CATEGORIES if category in categories)
        self._splits = make_splits(self._categories)
        self._show_tables = show_tables
        self._database: Reader | None = None
        self._question: Question | None = None
        self._tried = False
        super().__init__(use=use)

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        return self.describe(
            "sqlgym",
            splits={split: len(questions) for split, questions in self._splits.items()},
            splits_hash=splits_hash(self._categories),
            max_turns=8,
        )

    def begin(self, split: str, index: int, seed: int) -> Observation:
        """Ask the question. Nothing is left to chance, so ``seed`` changes nothing."""
        question = self._splits[split][index]
        self._question = question
        self._database = Reader(database_path())
        self._tried = False
        text = question.text
        if self._show_tables:
            tables = "\n".join(f"{name} ({columns})" for name, columns in TABLES.items())
            text = f"Tables:\n{tables}\n\nQuestion: {text}"
        return Observation(
            messages=(Message("system", _SYSTEM), Message("user", text)),
            info={"category": question.category},
        )

    @tool
    def describe_table(self, table: str) -> str:
        """Show a table's columns and its first three rows.

        Args:
            table: airlines, airports, planes, weather or flights.
        """
        if table not in TABLES:
            raise ToolError(f"there is no table {table!r:.60}; there are {', '.join(TABLES)}")
        rows = self._running().run(f"SELECT * FROM {table} LIMIT 3")  # the name is one of ours
        return f"{table} ({TABLES[table]})\n{_show(rows)}"

    @tool
    def query(self, sql: str) -> str:
        """Run a query and see its first 20 rows.

        Args:
            sql: one SELECT statement, in SQLite's dialect.
        """
        self._tried = True
        return _show(self._running().run(sql))

    def grade(self, answer: str) -> Grade:
        """Run the answer and compare; a query that fails is a wrong answer."""
        question, reader = self._question, self._running()
        assert question is not None
        fenced = _FENCE.findall(answer)
        try:
            given = reader.run(fenced[-1] if fenced else answer)
        except ToolError as error:
            return Grade(text=f"The query failed: {error}", metrics={"failed_query": 1.0})
        right = same_result(given, reader.run(question.sql), ordered=question.ordered)
        text = "The result is right." if right else "The result is not what was asked for."
        return Grade(reward=float(right), success=right, text=text, metrics={"failed_query": 0.0})

    def state_key(self) -> str | None:
        """Queries change nothing: the question is the state."""
        return hashlib.sha256(self._question.text.encode()).hexdigest()[:16] if self._question else None

    def end(self) -> None:
        """Close the connection."""
        if self._database is not None:
            self._database.close()
        self._database = self._question = None

    def expert_action(self) -> str:
        """Try the right query with the tool, then answer it."""
        question = self._question
        if question is None:
            raise RuntimeError("sqlgym: no episode is running; call reset")
        return (
            f"<answer>{question.sql}</answer>" if self._tried else write_call(self.use, "query", {"sql": question.sql})
        )

    def random_action(self, draw: random.Random) -> str:
        """A look at some table, or as an answer the right query of some other question of the training split."""
        if draw.random() < 0.5:
            return write_call(self.use, "describe_table", {"table": draw.choice(list(TABLES))})
        return f"<answer>{draw.choice(self._splits['train']).sql}</answer>"

    def _running(self) -> Reader:
        if self._database is None:
            raise RuntimeError("sqlgym: no episode is running; call reset")
        return self._database


def _show(rows: Rows) -> str:
    lines = [" | ".join(rows.columns)]
    lines += [" | ".join("NULL" if value is None else str(value) for value in row) for row in rows.rows[:_SHOWN_ROWS]]
    more = len(rows.rows) - _SHOWN_ROWS
    lines.append(f"({len(rows.rows)} rows{f', {_SHOWN_ROWS} shown' if more > 0 else ''})")
    return "\n".join(lines)
