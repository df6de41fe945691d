"""What tools return, as text that an agent can read."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from pydantic import BaseModel

NO_OUTPUT = "(no output)"

_SURROGATE = re.compile("[\ud800-\udfff]")


def result_text(value: Any) -> str:
    r"""Turn whatever came out of a tool into text. Never raises.

    A text stays, nothing is ``(no output)``, bytes are decoded with replacement, an exception is its type and message,
    and everything else is JSON with real characters, in the order in which it came; what JSON has no form for is
    written as ``str`` writes it. Lone surrogates, which no UTF-8 can hold, become U+FFFD.

    Example:
        >>> [result_text(value) for value in ({"b": 1, "a": "é"}, None, b"\xff", 3.5, ValueError("x"), [1, {2}])]
        ['{"b": 1, "a": "é"}', '(no output)', '\ufffd', '3.5', 'ValueError: x', '[1, "{2}"]']
    """
    return _SURROGATE.sub("\ufffd", _text(value))


def shorten(text: str, max_bytes: int) -> str:
    r"""Keep head and tail of a text that is longer than ``max_bytes`` in UTF-8, and say how much is left out between.

    No character is cut; the note in the middle comes on top of ``max_bytes``.

    Example:
        >>> shorten("0123456789", 4)
        '01\n[6 bytes left out]\n89'
    """
    data = text.encode(errors="replace")
    if len(data) <= max_bytes:
        return text
    head = data[: (max_bytes + 1) // 2].decode(errors="ignore")
    tail = data[len(data) - max_bytes // 2 :].decode(errors="ignore")
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[{left_out} bytes left out]\n{tail}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if value is None:
        return NO_OUTPUT
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode(errors="replace")
    if isinstance(value, BaseException):
        message = _printed(value)
        return f"{type(value).__name__}: {message}" if message else type(value).__name__
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RecursionError):
        return _printed(value)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        return value.tolist()
    return _text(value) if isinstance(value, bytes | bytearray) else _printed(value)


def _printed(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__} that cannot be printed: {type(error).__name__}>"
