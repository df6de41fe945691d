"""An asyncio loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines for callers that are not asynchronous, or whose own loop is busy (a notebook).

    Args:
        name: of the thread.
        cleanup_timeout_s: how long an interrupted caller waits for the coroutine's clean-up.
    """

    def __init__(self, name: str, *, cleanup_timeout_s: float = 30.0) -> None:
        self._cleanup_timeout_s = cleanup_timeout_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether :meth:`run` can be called."""
        return self._thread.is_alive()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end.

        What interrupts the caller while it waits (Ctrl-C) cancels the coroutine, and goes on only when that has
        cleaned up after itself: sessions are closed by then. A second Ctrl-C does not wait.
        """
        ended: Future[T] = Future()
        started: list[asyncio.Task[T]] = []

        def finish(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                ended.set_exception(asyncio.CancelledError("the coroutine was cancelled"))
            elif (error := task.exception()) is not None:
                ended.set_exception(error)
            else:
                ended.set_result(task.result())

        def start() -> None:
            started.append(self._loop.create_task(coroutine))
            started[0].add_done_callback(finish)

        self._loop.call_soon_threadsafe(start)
        try:
            wait([ended])
        except BaseException:
            self._loop.call_soon_threadsafe(lambda: started[0].cancel())  # runs behind `start`
            wait([ended], timeout=self._cleanup_timeout_s)
            raise
        return ended.result()

    def stop(self) -> None:
        """End the thread; what still runs is dropped."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        if not self._thread.is_alive():
            self._loop.close()
