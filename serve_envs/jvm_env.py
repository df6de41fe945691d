"""The base of environments on Java virtual machines: session on a machine, running task, the program's solution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from serve_envs.jvm import Jvm, JvmSession, JvmSettings
from serve_envs.warm_pool import WarmPool

T = TypeVar("T")
TaskT = TypeVar("TaskT")

_POOLS: dict[tuple[JvmSettings, int, int], WarmPool[Jvm]] = {}


def machines_of(main: str) -> list[WarmPool[Jvm]]:
    """The pools of one Java program, whatever their settings."""
    return [pool for (settings, _, _), pool in list(_POOLS.items()) if settings.main == main]


class JvmEnv(ABC, Generic[TaskT]):
    """One episode after the other on a virtual machine that many environments share. Scores run from -1 to 1.

    Args:
        settings: how to start a machine; environments with equal settings share their machines.
        machines: so many are started before any is shared.
        sessions: the most sessions on one machine.
    """

    name: ClassVar[str]
    main: ClassVar[str]
    """The Java class of a session."""
    idle_action: ClassVar[str]
    """What the expert does once its solution is at its end."""

    def __init__(self, settings: JvmSettings, machines: int, sessions: int) -> None:
        self._pool_key = (settings, machines, sessions)
        self._session: JvmSession | None = None
        self._task: TaskT | None = None
        self._score = 0.0
        self._steps = 0
        self._plan: list[str] | None = None

    def close(self) -> None:
        """Give the session back to its virtual machine, which stays warm."""
        self._task = None
        if self._session is not None:
            self._session.close()
            self._session = None

    @classmethod
    def release(cls) -> None:
        """Stop the virtual machines."""
        for pool in machines_of(cls.main):
            pool.close()

    def expert_action(self) -> str:
        """The next action of the program's own solution, made when first asked. Follows its own steps only."""
        task = self._running()
        if self._plan is None:
            solver = self._lease()
            try:
                self._plan = solver.call(lambda engine: self._solution(engine, task))
            finally:
                solver.close()
        return self._plan[self._steps] if self._steps < len(self._plan) else self.idle_action

    @abstractmethod
    def _solution(self, engine: Any, task: TaskT) -> list[str]:
        """The program's own solution of a task, in another session than the episode's."""

    def _begin(self, task: TaskT, work: Callable[[Any], T]) -> T:
        """Begin an episode: ``work`` sets it up in the program."""
        if self._session is None or self._session.lost:
            self.close()
            self._session = self._lease()
        shown = self._session.call(work)
        self._task = task
        self._score, self._steps, self._plan = 0.0, 0, None
        return shown

    def _advance(self, work: Callable[[Any], T]) -> T:
        """Take a step: ``work`` does it in the program.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
            InfrastructureError: ``session_lost``: the virtual machine died.
        """
        self._running()
        assert self._session is not None
        shown = self._session.call(work)
        self._steps += 1
        return shown

    def _gain(self, score: float) -> float:
        """By how much the score rose."""
        gained, self._score = score - self._score, score
        return gained

    def _running(self) -> TaskT:
        if self._task is None:
            raise RuntimeError(f"{self.name}: no episode is running; call reset")
        return self._task

    def _lease(self) -> JvmSession:
        settings, machines, sessions = self._pool_key
        pool = _POOLS.get(self._pool_key)
        if pool is None:
            made = WarmPool(partial(Jvm, settings), spread=machines, sessions=sessions)
            pool = _POOLS.setdefault(self._pool_key, made)
        return JvmSession(pool)
