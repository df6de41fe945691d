"""Calls in Python's notation, read and never run."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any

from rllib_agentic.tools.calling.reading import BadCall, Call

_MOST_CHARACTERS = 100_000


def read_python_calls(code: str, names: Sequence[str]) -> tuple[Call | BadCall, ...]:
    r"""The calls of a piece of Python code, in order.

    Each statement must be a call whose arguments are literals: ``search("cats", k=3)``. A result may be assigned or
    printed, which changes nothing; comments and bare strings are thoughts. Anything else would have to be run, and
    makes one :class:`~rllib_agentic.tools.calling.reading.BadCall` of the whole piece.

    Args:
        code: of the agent.
        names: the tools' names; ``print`` is looked through unless it is one.

    Example:
        >>> read_python_calls("# look it up\nprint(search('cats', k=3))", ["search"])
        (Call(name='search', arguments={'k': 3}, positional=('cats',), as_text=False),)
    """
    if len(code) > _MOST_CHARACTERS:
        return (BadCall(f"the code has {len(code)} characters; the most is {_MOST_CHARACTERS}"),)
    try:
        statements = ast.parse(code).body
        calls = [_call(node, names) for node in statements if not _is_thought(node)]
    except SyntaxError as error:
        return (BadCall(f"line {error.lineno}: {error.msg}"),)
    except (ValueError, RecursionError, MemoryError) as error:
        return (BadCall(str(error) or "the code is nested too deeply"),)
    return tuple(calls) or (BadCall("the code calls no tool"),)


def _is_thought(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _call(node: ast.stmt, names: Sequence[str]) -> Call:
    value = node.value if isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign) else None
    if isinstance(value, ast.Call) and _name(value.func) == "print" and "print" not in names and len(value.args) == 1:
        value = value.args[0]
    name = _name(value.func) if isinstance(value, ast.Call) else None
    if not isinstance(value, ast.Call) or name is None:
        raise ValueError(f"line {node.lineno}: expected a call of a tool, such as NAME(ARGUMENT=VALUE)")
    arguments: dict[str, Any] = {}
    for keyword in value.keywords:
        if keyword.arg is None:
            raise ValueError(f"line {node.lineno}: ** is not known here; write every argument")
        arguments[keyword.arg] = _literal(keyword.value)
    return Call(name, arguments, tuple(_literal(argument) for argument in value.args))


def _name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _name(node.value)) is not None:
        return f"{owner}.{node.attr}"
    return None


def _literal(node: ast.expr) -> Any:
    try:
        return _as_json(ast.literal_eval(node))
    except (ValueError, TypeError) as error:
        what = ast.unparse(node)
        raise ValueError(f"line {node.lineno}: {what:.60} is no literal that JSON knows") from error


def _as_json(value: Any) -> Any:
    if value is None or isinstance(value, bool | str | int) or (isinstance(value, float) and math.isfinite(value)):
        if isinstance(value, str):
            value.encode()  # half a surrogate pair is a ValueError
        return value
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(item) for key, item in value.items()}
    raise ValueError(type(value).__name__)
