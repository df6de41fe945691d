"""Runs that are still open, so that whatever ends the process tells the truth about them.

A run that is left open when the interpreter ends, or when SIGTERM comes, is ended as killed (or failed, where an
exception ended the process). Only SIGKILL and a power cut are beyond this.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from enum import StrEnum
from types import FrameType
from typing import Protocol


class RunStatus(StrEnum):
    """How a run ended, in MLflow's words."""

    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"


class Endable(Protocol):
    """What can be open."""

    def end(self, status: RunStatus) -> None:
        """End the run; tells the service later."""
        ...

    def flush(self) -> None:
        """Wait, for a limited time, until the service knows everything."""
        ...


class OpenRuns:
    """The open runs of this process. One instance, :data:`open_runs`, serves everybody."""

    def __init__(self) -> None:
        self._open: list[Endable] = []
        self._previous: object = None
        self._installed = False
        atexit.register(self._at_exit)

    def add(self, run: Endable) -> None:
        """Watch over a run; the first one installs the SIGTERM handler (in the main thread only)."""
        self._open.append(run)
        if not self._installed and threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._on_sigterm)
            self._installed = True

    def remove(self, run: Endable) -> None:
        """Forget a run that has ended; the last one puts the earlier SIGTERM handler back."""
        with contextlib.suppress(ValueError):
            self._open.remove(run)
        if not self._open:
            self._restore()

    def end_all(self, status: RunStatus) -> None:
        """End every open run, and wait some seconds until the service knows."""
        ended = list(self._open)
        for run in ended:
            run.end(status)
        for run in ended:
            run.flush()

    def _restore(self) -> None:
        if self._installed and threading.current_thread() is threading.main_thread():
            self._installed = False
            if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
                signal.signal(signal.SIGTERM, self._previous)  # type: ignore[arg-type]

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous
        self.end_all(RunStatus.KILLED)
        self._restore()
        if callable(previous):
            previous(number, frame)
        elif previous != signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def _at_exit(self) -> None:
        error = getattr(sys, "last_value", None)
        crashed = error is not None and not isinstance(error, KeyboardInterrupt)
        self.end_all(RunStatus.FAILED if crashed else RunStatus.KILLED)


open_runs = OpenRuns()


def status_of(error: BaseException | None) -> RunStatus:
    """How a run ended that ended with this exception, or with none."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return RunStatus.FINISHED
    return RunStatus.FAILED if isinstance(error, Exception) else RunStatus.KILLED
