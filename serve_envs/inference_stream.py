"""Text of a turn while it is sampled, and OpenAI's completions as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
_CUT = "\ufffd"  # what a decoder makes of half a character


class TextFlow:
    """Turns ids into text as they come, and holds back what may still change: half characters, half a stop string.

    Args:
        decode: ids to text.
        stop: strings that end the text, which does not contain them.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str]) -> None:
        self._decode = decode
        self._stop = tuple(stop)
        self._ids: list[int] = []
        self._before = self._read = (
            0  # ids from the first are decoded together with new ones, up to the second are text
        )
        self._text = ""
        self._given = 0

    def push(self, ids: Sequence[int]) -> str:
        """The text that is certain now and was not before."""
        self._ids += ids
        known = self._decode(self._ids[self._before : self._read])
        new = self._decode(self._ids[self._before :])[len(known) :]
        if new and not new.endswith(_CUT):
            self._text += new
            self._before, self._read = self._read, len(self._ids)
        return self._give(self._text, self._certain())

    def end(self, text: str) -> str:
        """What is left of the whole text."""
        return self._give(text, len(text))

    def _give(self, text: str, until: int) -> str:
        given, self._given = self._given, max(self._given, until)
        return text[given : self._given]

    def _certain(self) -> int:
        found = [at for stop in self._stop if (at := self._text.find(stop, max(0, self._given - len(stop)))) >= 0]
        half = [
            len(self._text) - size
            for stop in self._stop
            for size in range(1, len(stop))
            if self._text.endswith(stop[:size])
        ]
        return min([len(self._text), *found, *half])


async def merged(flows: Sequence[AsyncIterator[T]]) -> AsyncGenerator[tuple[int, T]]:
    """What several iterators give, as it comes, with the number of each; the first error ends all."""
    queue: asyncio.Queue[tuple[int, T | None, BaseException | None]] = asyncio.Queue()

    async def drain(number: int, flow: AsyncIterator[T]) -> None:
        try:
            async for item in flow:
                queue.put_nowait((number, item, None))
        except Exception as error:
            queue.put_nowait((number, None, error))
        else:
            queue.put_nowait((number, None, None))

    tasks = [asyncio.create_task(drain(number, flow)) for number, flow in enumerate(flows)]
    try:
        running = len(tasks)
        while running:
            number, item, error = await queue.get()
            if error is not None:
                raise error
            if item is None:
                running -= 1
            else:
                yield number, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def event(body: dict[str, Any] | str) -> str:
    """One server-sent event."""
    return f"data: {body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)}\n\n"
