"""One event loop a process, in a thread of its own, on which all tools run."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_running: tuple[int, asyncio.AbstractEventLoop] | None = None


def run_on_tool_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run async work from a thread that has no loop, and wait for it.

    All environments of a process share the loop, so that what belongs to one loop (a connection to an MCP server, for
    example) can serve them all. Whoever waits can be interrupted; the work is then cancelled.

    Raises:
        RuntimeError: called on the tools' loop itself, which would wait for itself for ever.
    """
    loop = _tool_loop()
    try:
        if asyncio.get_running_loop() is loop:
            work.close()
            raise RuntimeError("a tool drives a tool environment synchronously on the tools' loop; use a thread")
    except RuntimeError as error:
        if "no running event loop" not in str(error):
            raise
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _tool_loop() -> asyncio.AbstractEventLoop:
    global _running
    with _lock:
        if _running is None or _running[0] != os.getpid():  # a forked child has no thread that runs the old loop
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="tools", daemon=True).start()
            _running = os.getpid(), loop
        return _running[1]
