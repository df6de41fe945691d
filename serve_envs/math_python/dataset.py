"""Reading problems from JSONL and Parquet files."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

from rllib_agentic.errors import InputError
from rllib_agentic.rewards.boxed import boxed_answer
from serve_envs.math_python.problem import Problem

_FINAL = re.compile(r"####\s*(.+?)\s*\Z", re.DOTALL)


def read_problems(path: str, question: str, answer: str) -> Iterator[Problem]:
    """The problems of a file, in its order.

    Args:
        path: a file's path, or a URL that fsspec knows; ``.parquet``, or JSON, one object a line.
        question: name of the column.
        answer: name of the column.

    Raises:
        InputError: no such file, another form, or a row without the columns.
    """
    for number, row in enumerate(_rows(path), 1):
        if not isinstance(row, dict) or question not in row or answer not in row:
            has = ", ".join(map(str, row)) if isinstance(row, dict) else type(row).__name__
            raise InputError(f"tasks: {path}, row {number}: no columns {question!r} and {answer!r}; it has {has}")
        right = final_answer(str(row[answer]))
        yield Problem(str(row[question]).strip(), right, f"print({right!r})", "dataset")


def final_answer(text: str) -> str:
    r"""The answer at the end of a worked solution.

    Example:
        >>> final_answer("3 * 400 = 1200\n#### 1,200"), final_answer(r"so \boxed{\frac12}."), final_answer(" 7 ")
        ('1,200', '\\frac12', '7')
    """
    if found := _FINAL.search(text):
        return found[1]
    return boxed_answer(text) or text.strip()


def _rows(path: str) -> Iterator[Any]:
    import fsspec  # type: ignore[import-untyped]

    try:
        with fsspec.open(path, "rb") as file:
            content = file.read()
    except (OSError, ValueError, ImportError) as error:
        raise InputError(f"tasks: {path} cannot be read: {type(error).__name__}: {error}") from error
    if path.endswith(".parquet"):
        import pyarrow.parquet

        try:
            yield from pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
        except pyarrow.ArrowInvalid as error:
            raise InputError(f"tasks: {path} is no Parquet file: {error}") from error
        return
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"tasks: {path}, line {number} is no JSON: {error}") from error
