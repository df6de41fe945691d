"""Content that passes through a chat template without ever being read as markup."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rllib_agentic.rendering.inert import InertEncoder, proper_prefixes

_SLOT = "\U0010fffb"
_FIRST_INDEX = 0xF0000  # plane 15: private use, survives strip(), upper() and JSON


class Markup:
    """How a tokenizer's rendered templates are taken apart. Stateless; one a renderer.

    Args:
        encoder: knows which added tokens are controls, marks and words.
    """

    def __init__(self, encoder: InertEncoder) -> None:
        self.encoder = encoder
        added = f"|{encoder.matcher.pattern}" if encoder.matcher else ""
        self.splitter = re.compile(f"{_SLOT}(?P<index>.){added}", re.DOTALL)
        self._escaped = {}
        for trusted in (True, False):
            markers = encoder.controls if trusted else encoder.controls | encoder.marks
            whole = [re.escape(marker) for marker in sorted({*markers, _SLOT}, key=len, reverse=True)]
            self._escaped[trusted] = re.compile("|".join(whole)), proper_prefixes(markers)
        self._longest = max((len(marker) for marker in encoder.controls | encoder.marks), default=1)

    def escapable(self, text: str, trusted: bool) -> list[tuple[int, int]]:
        """Spans of a text that could be read as markup: whole markers, and a marker's beginning at the very end.

        The end matters because the template may go on with the rest of the marker.
        """
        whole, prefixes = self._escaped[trusted]
        spans = [match.span() for match in whole.finditer(text)]
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            start = len(text) - length
            if text[start:] in prefixes and (not spans or spans[-1][1] <= start):
                return [*spans, (start, len(text))]
        return spans


class Slots:
    """Stand-ins of one rendering: put into the messages before the template runs, taken out of its result.

    A stand-in is two private-use characters. The template moves it about like any text, but finds no marker in it.

    Args:
        markup: of the renderer.
    """

    def __init__(self, markup: Markup) -> None:
        self._markup = markup
        self._values: list[str | list[int]] = []
        self._known: dict[str, str] = {}

    def escape(self, text: str, *, trusted: bool) -> str:
        """The text with stand-ins where it could be read as markup; nearly always the text itself."""
        parts: list[str] = []
        position = 0
        for start, end in self._markup.escapable(text, trusted):
            parts += [text[position:start], self._stand_in(text[start:end])]
            position = end
        return "".join([*parts, text[position:]]) if parts else text

    def escape_all(self, value: Any, *, trusted: bool) -> Any:
        """The same for every string in a JSON-like value, keys included."""
        if isinstance(value, str):
            return self.escape(value, trusted=trusted)
        if isinstance(value, Mapping):
            return {self.escape_all(k, trusted=trusted): self.escape_all(v, trusted=trusted) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.escape_all(item, trusted=trusted) for item in value]
        return value

    def exact(self, ids: Sequence[int]) -> str:
        """A stand-in for exactly these ids."""
        self._values.append(list(ids))
        return _SLOT + chr(_FIRST_INDEX + len(self._values) - 1)

    def encode(self, rendered: str, *, at_start: bool = False) -> list[int]:
        """Ids of a rendered template: its own markers by id, stand-ins as what they stand for, the rest as text.

        Text between two markers is encoded in one run, so that harmless content gives the very ids of the plain
        tokenization.

        Args:
            rendered: what the template gave, or its tail.
            at_start: whether the text begins the whole context.
        """
        encoder = self._markup.encoder
        ids: list[int] = []
        run: list[str] = []
        position = 0

        def flush() -> None:
            ids.extend(encoder.encode_run("".join(run), at_start=at_start and not ids))
            run.clear()

        for match in self._markup.splitter.finditer(rendered):
            run.append(rendered[position : match.start()])
            position = match.end()
            index = match.group("index")
            value = None if index is None else self._values[ord(index) - _FIRST_INDEX]
            if isinstance(value, str):
                run.append(value)
                continue
            flush()
            ids.extend([encoder.id_of(match.group())] if value is None else value)
        run.append(rendered[position:])
        flush()
        return ids

    def _stand_in(self, text: str) -> str:
        if text not in self._known:
            self._values.append(text)
            self._known[text] = _SLOT + chr(_FIRST_INDEX + len(self._values) - 1)
        return self._known[text]
