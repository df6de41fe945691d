"""Stop strings in text: where a turn that one of them ended is heard to end."""

from __future__ import annotations

from collections.abc import Sequence


def up_to_stop(text: str, stop_strings: Sequence[str]) -> str:
    r"""The text up to the end of the stop string that is complete first; all of it where there is none.

    The last sampled token may go on behind a stop string. It is kept whole, and trained; but nobody hears the rest.

    Example:
        >>> up_to_stop("<a>1</a>\n\n", ("</a>", "</b>"))
        '<a>1</a>'
    """
    ends = [text.find(stop) + len(stop) for stop in stop_strings if stop in text]
    return text[: min(ends, default=len(text))]
