"""Where new weights are let in: between two forwards, after the turns that must end first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class WeightGate:
    """Orders changes of the weights and the forwards of one engine. All of it belongs to one event loop at a time."""

    def __init__(self) -> None:
        self._change: _Change | None = None

    async def change(self, load: Callable[[], Awaitable[None]], *, finish_turns: bool, working: bool) -> None:
        """Wait for the place between two forwards, and load there. Changes come one after the other.

        Args:
            load: puts the new weights in place.
            finish_turns: wait until no turn runs; nothing is admitted meanwhile.
            working: whether there is a driver that will come to :meth:`pass_by` or :meth:`leave`.
        """
        while self._change is not None:
            await self._change.done.wait()
        change = self._change = _Change(finish_turns)
        try:
            if working:
                await change.ready.wait()
            await load()
        finally:
            self._change = None
            change.done.set()

    async def pass_by(self, *, running: bool) -> bool:
        """Called before each forward; lets a change go first.

        Args:
            running: whether turns run.

        Returns:
            Whether waiting requests may be admitted now.
        """
        while (change := self._change) is not None and not (change.finish_turns and running):
            change.ready.set()
            await change.done.wait()
            running = False  # new weights send every turn back to wait
        return self._change is None

    def leave(self) -> None:
        """Called when there will be no further forward for now."""
        if self._change is not None:
            self._change.ready.set()


class _Change:
    __slots__ = ("done", "finish_turns", "ready")

    def __init__(self, finish_turns: bool) -> None:
        self.finish_turns = finish_turns
        self.ready = asyncio.Event()
        self.done = asyncio.Event()
