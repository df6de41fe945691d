"""What a worker counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rllib_agentic.envs.faults import FaultCode
from rllib_agentic.envs.latencies import Latencies
from rllib_agentic.envs.wire import WorkerMetrics


class Tally:
    """Sessions, steps, failures and durations since a worker began. A repeated request counts again."""

    def __init__(self) -> None:
        self.sessions_expired = 0
        self._sessions_begun = 0
        self._steps = 0
        self._errors: Counter[str] = Counter()
        self._resets = Latencies()
        self._step_times = Latencies()

    def failed(self, code: FaultCode) -> None:
        """A request failed."""
        self._errors[code.value] += 1

    @contextmanager
    def reset(self) -> Iterator[None]:
        """The time of one reset, counted where it does not fail."""
        began = time.perf_counter()
        yield
        self._resets.add(time.perf_counter() - began)
        self._sessions_begun += 1

    @contextmanager
    def step(self) -> Iterator[None]:
        """The time of one step, counted where it does not fail."""
        began = time.perf_counter()
        yield
        self._step_times.add(time.perf_counter() - began)
        self._steps += 1

    def counted(self, worker_id: str, sessions: int, stuck_calls: int) -> WorkerMetrics:
        """Everything so far, with what stands now."""
        return WorkerMetrics(
            worker_id=worker_id,
            sessions=sessions,
            sessions_begun=self._sessions_begun,
            sessions_expired=self.sessions_expired,
            steps=self._steps,
            stuck_calls=stuck_calls,
            errors=dict(self._errors),
            reset_latencies=self._resets.counts(),
            step_latencies=self._step_times.counts(),
        )
