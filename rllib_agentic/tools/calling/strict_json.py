"""JSON as agents may write it: one reading for every text, or a clear fault."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_MOST_DIGITS = 300
_DEEPEST = 100
_SPACE = re.compile(r"\s*")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonFault(ValueError):
    """The text is no JSON under these rules; the message says where and why.

    Args:
        message: what is wrong.
        unfinished: whether nothing is wrong but that the text ends too early.
    """

    def __init__(self, message: str, *, unfinished: bool = False) -> None:
        super().__init__(message)
        self.unfinished = unfinished


def decode_from(text: str, at: int) -> tuple[Any, int]:
    r"""Decode the value that begins at ``at``, white space left aside; give it and where it ends.

    Nothing is repaired. Control characters in strings are taken as they are written, so that code may stand in a string
    with real newlines. Refused are: a key twice in one object, NaN and Infinity, numbers that a float cannot hold,
    integers of more than 300 digits, half a surrogate pair, and more than 100 levels of nesting.

    Raises:
        JsonFault: what is wrong, and at which character.

    Example:
        >>> decode_from('call: {"a": "1\n2"} end', 5)
        ({'a': '1\n2'}, 18)
    """
    try:
        value, end = _DECODER.raw_decode(text, _SPACE.match(text, at).end())  # type: ignore[union-attr]
    except json.JSONDecodeError as error:
        near = text[error.pos : error.pos + 20]
        if not near.strip() or error.msg.startswith("Unterminated string"):
            raise JsonFault(f"{error.msg}: the text ends before it does", unfinished=True) from None
        raise JsonFault(f"{error.msg} at {near!r}") from None
    except RecursionError:
        raise JsonFault(f"more than {_DEEPEST} levels of nesting") from None
    _check_depth(value)
    return value, end


def decode(text: str) -> Any:
    """Decode a text that is one value and nothing else.

    Raises:
        JsonFault: as :func:`decode_from`, or something follows the value.
    """
    value, end = decode_from(text, 0)
    if text[end:].strip():
        raise JsonFault(f"extra data after the value: {text[end:].strip()[:20]!r}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise JsonFault(f"the key {key!r} stands twice in one object")
        for text in (key, value):
            _check_text(text)
        found[key] = value
    return found


def _check_text(value: Any) -> None:
    if isinstance(value, str) and _LONE_SURROGATE.search(value):
        raise JsonFault("half a surrogate pair, which is no character")
    if isinstance(value, list):
        for item in value:
            _check_text(item)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST + 1):
        inner = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        if not inner:
            return
        level = [item for items in inner for item in items]
    raise JsonFault(f"more than {_DEEPEST} levels of nesting")


def _constant(name: str) -> Any:
    raise JsonFault(f"{name} is no JSON number")


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise JsonFault(f"an integer of {len(digits)} digits; the most is {_MOST_DIGITS}")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise JsonFault(f"{digits[:20]} is too large for a number")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float, strict=False
)
