"""Calls as the package writes them in its gold solutions."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple


class GoldCall(NamedTuple):
    """A right call: some arguments may be without a name."""

    name: str
    positional: tuple[Any, ...]
    named: dict[str, Any]


def read_gold(text: str) -> GoldCall:
    """Read one call with literal arguments; nothing is run.

    Raises:
        ValueError: the text is something else.

    Example:
        >>> read_gold("mv('a.txt', destination='temp')")
        GoldCall(name='mv', positional=('a.txt',), named={'destination': 'temp'})
    """
    node = ast.parse(text.strip(), mode="eval").body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"expected a call, got {text!r:.80}")
    named = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in node.keywords}
    return GoldCall(node.func.id, tuple(ast.literal_eval(value) for value in node.args), named)
