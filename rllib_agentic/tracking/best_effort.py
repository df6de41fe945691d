"""A queue whose work may fail, be slow or never finish, without the caller noticing."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

logger = logging.getLogger(__name__)


class Gap(NamedTuple):
    """What never arrived: by label how many pieces of work, and the last reason."""

    lost: dict[str, int]
    reason: str

    def __str__(self) -> str:
        counts = ", ".join(f"{count} x {label}" for label, count in self.lost.items())
        return f"{counts} (last reason: {self.reason})"


@dataclass(frozen=True, slots=True)
class _Work:
    label: str
    do: Callable[[], None]


class BestEffortQueue:
    """Does work in order on a background thread; adding work never blocks and never raises.

    While a service is down its work waits and is tried again, with growing pauses, so an outage shorter than the
    queue is long loses nothing. Work beyond ``capacity`` is dropped and counted; so is work that can never succeed.

    Args:
        name: for the thread and for warnings.
        is_hopeless: whether an exception means that trying again is useless.
        capacity: the most pieces of work that wait.
        max_pause_s: the longest pause between two tries.
    """

    def __init__(
        self, name: str, is_hopeless: Callable[[Exception], bool], *, capacity: int = 1000, max_pause_s: float = 30.0
    ) -> None:
        self._name = name
        self._is_hopeless = is_hopeless
        self._capacity = capacity
        self._max_pause_s = max_pause_s
        self._waiting: deque[_Work] = deque()
        self._changed = threading.Condition()
        self._deadline: float | None = None  # monotonic; set by flush: after it no try is repeated
        self._lost: dict[str, int] = {}
        self._reason = ""
        self._thread: threading.Thread | None = None

    def add(self, label: str, do: Callable[[], None], *, always: bool = False) -> bool:
        """Queue one piece of work.

        Args:
            label: what it is, for the report of the gap.
            do: the work; raises where it failed.
            always: whether to queue it even beyond the capacity (for the few pieces that must not be dropped).

        Returns:
            False where the queue was full and the work was dropped.
        """
        with self._changed:
            if len(self._waiting) >= self._capacity and not always:
                self._lose(label, self._reason or f"more than {self._capacity} pieces of work were waiting")
                return False
            self._waiting.append(_Work(label, do))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return True

    def flush(self, timeout_s: float) -> Gap | None:
        """Wait until all work is done, at most ``timeout_s``; what still waits then is given up.

        Returns:
            All that was lost since the queue was made, or None where everything arrived.
        """
        with self._changed:
            self._deadline = time.monotonic() + timeout_s
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting, timeout=timeout_s)
            for work in self._waiting:
                self._lose(work.label, self._reason or f"no answer within {timeout_s:g} s")
            self._waiting.clear()
            self._deadline = None
            return Gap(dict(self._lost), self._reason) if self._lost else None

    def _lose(self, label: str, reason: str) -> None:
        self._lost[label] = self._lost.get(label, 0) + 1
        self._reason = reason

    def _run(self) -> None:
        pause_s = 0.0
        while True:
            with self._changed:
                if pause_s:
                    self._pause(pause_s)
                self._changed.wait_for(lambda: bool(self._waiting))
                work = self._waiting[0]
            error = _failure(work)
            with self._changed:
                pause_s = self._settle(work, error, pause_s)
                self._changed.notify_all()

    def _pause(self, pause_s: float) -> None:
        """Wait before the next try; shortly, where somebody is waiting for the queue."""
        flushing = self._changed.wait_for(lambda: self._deadline is not None, timeout=pause_s)
        if flushing:
            self._changed.wait(timeout=min(pause_s, 0.5))

    def _settle(self, work: _Work, error: Exception | None, pause_s: float) -> float:
        """Take finished or hopeless work off the queue; the pause before the next try."""
        if error is None:
            if pause_s:
                logger.warning("%s: works again", self._name)
            self._discard(work)
            return 0.0
        reason = f"{type(error).__name__}: {error}"
        if self._is_hopeless(error):
            if work.label not in self._lost:
                logger.warning("%s: %s was refused: %s", self._name, work.label, reason)
            if self._discard(work):
                self._lose(work.label, reason)
            return 0.0
        self._reason = reason
        if not pause_s:
            logger.warning("%s: %s failed and is tried again; the run goes on: %s", self._name, work.label, reason)
        return min(max(2 * pause_s, 0.5), self._max_pause_s)

    def _discard(self, work: _Work) -> bool:
        """Remove work from the head, unless a flush gave it up meanwhile."""
        if self._waiting and self._waiting[0] is work:
            self._waiting.popleft()
            return True
        return False


def _failure(work: _Work) -> Exception | None:
    try:
        work.do()
    except Exception as error:  # the very purpose: whatever fails here, the caller goes on
        return error
    return None
