"""Virtual machines, browsers and planners under environments: kept warm, and shared by the sessions of a process."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Machine(Protocol):
    """Something costly that many sessions share, in a process of its own."""

    @property
    def dead(self) -> bool:
        """Whether it cannot be used any more."""
        ...

    @property
    def process_id(self) -> int | None:
        """Of its process, where it runs."""
        ...

    def kill(self) -> None:
        """Stop it and what it started, at once, and reap it; may be called more than once."""
        ...


M = TypeVar("M", bound=Machine)


class WarmPool(Generic[M]):
    """Hands machines to sessions. Machines are made when they are first needed, and killed with this process.

    Args:
        make: makes a machine; must be quick, the machine starts itself at its first use.
        spread: so many machines are made before any is shared.
        sessions: the most sessions on one machine; where all are full another is made.
    """

    def __init__(self, make: Callable[[], M], spread: int, sessions: int) -> None:
        self._make = make
        self._spread = spread
        self._sessions = sessions
        self._lock = threading.Lock()
        self._loads: dict[M, int] = {}
        atexit.register(self.close)

    @property
    def process_ids(self) -> list[int]:
        """Of the machines that run."""
        with self._lock:
            return [pid for machine in self._loads if (pid := machine.process_id) is not None]

    def lease(self) -> M:
        """The machine with the fewest sessions, or a new one."""
        with self._lock:
            self._loads = {machine: load for machine, load in self._loads.items() if not machine.dead}
            free = [machine for machine, load in self._loads.items() if load < self._sessions]
            if not free or len(self._loads) < self._spread:
                machine = self._make()
                self._loads[machine] = 0
            else:
                machine = min(free, key=lambda one: self._loads[one])
            self._loads[machine] += 1
            return machine

    def give_back(self, machine: M) -> None:
        """A session on the machine has ended."""
        with self._lock:
            if machine in self._loads:
                self._loads[machine] -= 1

    def close(self) -> None:
        """Kill all machines; sessions that are still open are lost. The next lease makes new ones."""
        with self._lock:
            machines, self._loads = list(self._loads), {}
        for machine in machines:
            machine.kill()
