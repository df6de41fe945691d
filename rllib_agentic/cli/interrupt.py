"""Ctrl-C: the first one stops at the next result, with a checkpoint; the second one at once."""

from __future__ import annotations

import difflib
import math
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ray.tune.stopper import Stopper

from rllib_agentic.cli.outcome import flat_metrics


class InterruptStopper(Stopper):
    """Ends a trial at its stop criteria, and at its next result once an interrupt came; Tune saves the last checkpoint.

    Attributes:
        criteria: metric (``a/b/c``) to the value at which a trial has done enough.
        interrupted: whether an interrupt came.
        reasons: why trials were stopped: trial id to ``criteria`` or ``interrupt``.
        running: ids of the trials that train now; :class:`~rllib_agentic.cli.schedulers.EndNotes` keeps it.
    """

    def __init__(self, criteria: Mapping[str, float] | None = None) -> None:
        self.criteria: Mapping[str, float] = criteria or {}
        self.interrupted = False
        self.reasons: dict[str, str] = {}
        self.running: set[str] = set()
        self._warned: set[str] = set()

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether this trial is to stop now."""
        self._warn_of_unknown(flat_metrics(result))
        if self.reached(result):
            self.reasons[trial_id] = "criteria"
        elif self.interrupted:
            self.reasons[trial_id] = "interrupt"
        return trial_id in self.reasons

    def reached(self, result: Mapping[str, Any]) -> bool:
        """Whether a result meets one of the criteria."""
        found = flat_metrics(result)
        return any(found.get(key, -math.inf) >= value for key, value in self.criteria.items())

    def _warn_of_unknown(self, found: Mapping[str, float]) -> None:
        """Say once of every criterion that the results hold no such metric: the run would never stop by it."""
        evaluated = any(name.startswith("evaluation/") for name in found)
        for key in self.criteria:
            if key in found or key in self._warned or (key.startswith("evaluation/") and not evaluated):
                continue
            self._warned.add(key)
            near = difflib.get_close_matches(key, found, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            print(f"warning: stop.{key}: the results hold no such metric so far.{hint}", file=sys.stderr, flush=True)

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        """Tune stores its stopper with the experiment; what comes back on resume is the one of this run."""
        return _of_this_run, ()

    def stop_all(self) -> bool:
        """After an interrupt, once every trial that trained has saved: trials that wait are not begun."""
        return self.interrupted and not self.running


@contextmanager
def stops_on_interrupt(stopper: InterruptStopper) -> Iterator[None]:
    """While this is open, the first SIGINT asks the stopper to stop, the second raises KeyboardInterrupt."""

    def handle(number: int, frame: FrameType | None) -> None:
        if stopper.interrupted:
            raise KeyboardInterrupt
        stopper.interrupted = True
        print(
            "Interrupted: finishing this iteration, then saving a checkpoint. Press Ctrl-C again to end at once.",
            file=sys.stderr,
            flush=True,
        )

    before = signal.signal(signal.SIGINT, handle)
    _running.append(stopper)
    try:
        yield
    finally:
        _running.remove(stopper)
        signal.signal(signal.SIGINT, before)


_running: list[InterruptStopper] = []


def _of_this_run() -> InterruptStopper:
    return _running[-1] if _running else InterruptStopper()
