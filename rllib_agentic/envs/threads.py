"""Threads for calls that may block, or never come back."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
_Job = Callable[[], Callable[[], None]]  # does the work, and gives what tells the caller


class BlockingCalls:
    """Runs blocking calls off the event loop in daemon threads that are reused.

    Unlike a fixed pool, a call that never returns costs one thread and holds back nobody, and the process still
    exits. The number of threads is bounded by the calls that its owner has open at once.

    Args:
        name: prefix of the threads' names.
        idle_s: an unused thread ends after this time.
    """

    def __init__(self, name: str, idle_s: float = 30.0) -> None:
        self._name = name
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[_Job]] = []
        self._stuck = 0

    @property
    def stuck(self) -> int:
        """Calls that passed their time limit and still run."""
        return self._stuck

    async def run(self, call: Callable[[], T], timeout_s: float | None = None) -> T:
        """Run one call.

        Raises:
            TimeoutError: the call runs longer than ``timeout_s``; it goes on, its result is dropped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        late = finished = False

        def deliver(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def job() -> Callable[[], None]:
            nonlocal finished
            result, error = None, None
            try:
                result = call()
            except BaseException as raised:  # crosses to the caller's loop, whatever it is
                error = raised
            with self._lock:
                finished = True
                self._stuck -= late

            def report() -> None:
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(deliver, result, error)

            return report

        self._submit(job)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            with self._lock:
                if not finished:
                    late = True
                    self._stuck += 1
            raise

    def _submit(self, job: _Job) -> None:
        with self._lock:
            if self._idle:
                self._idle.pop().put(job)
                return
        jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        jobs.put(job)
        threading.Thread(target=self._work, args=(jobs,), name=f"{self._name}-call", daemon=True).start()

    def _work(self, jobs: queue.SimpleQueue[_Job]) -> None:
        while True:
            try:
                job = jobs.get(timeout=self._idle_s)
            except queue.Empty:
                with self._lock:
                    if jobs in self._idle:
                        self._idle.remove(jobs)
                        return
                continue  # taken from the idle list a moment ago: its job is there
            report = job()
            with self._lock:
                self._idle.append(jobs)  # before the caller hears of it, so that its next call finds this thread
            report()
            del job, report
