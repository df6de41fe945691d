"""Code as models write it, as Python takes it."""

from __future__ import annotations

import re
import textwrap

_OPENING = re.compile(r"\A\s*(`{3,}|~{3,})[ \t]*[\w+.-]*[ \t]*\n")


def clean_code(text: str) -> str:
    r"""Take away what is no code: fences around all of it, a byte order mark, a common indent, other line ends.

    The indent is removed only where the first line has it, for such code could not run as it is. A fence that is opened
    and never closed goes too. Tabs stay.

    Example:
        >>> clean_code("```python\r\n    print(1)\r\n    print(2)\r\n```")
        'print(1)\nprint(2)\n'
    """
    text = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if opening := _OPENING.match(text):
        text = text[opening.end() :]
        closing = re.compile(rf"^[ \t]*{re.escape(opening[1])}[ \t]*\s*\Z", re.MULTILINE).search(text)
        text = text[: closing.start()] if closing else text
        text = text.lstrip("\ufeff")
    first = text.lstrip("\n")
    return textwrap.dedent(text) if first[:1] in (" ", "\t") else text
