"""The base of environments whose costly part is in child processes: session in a process, running task, their ends."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar
from uuid import uuid4

from rllib_agentic.errors import InfrastructureError
from serve_envs.child import Child
from serve_envs.warm_pool import WarmPool

TaskT = TypeVar("TaskT")

_POOLS: dict[tuple[str, int, int], WarmPool[Child]] = {}


def children_of(target: str) -> list[WarmPool[Child]]:
    """The pools of one kind of process, whatever their sizes.

    Args:
        target: ``"module:Class"`` of what a process holds.
    """
    return [pool for (kind, _, _), pool in list(_POOLS.items()) if kind == target]


class ChildEnv(ABC, Generic[TaskT]):
    """One episode after the other in a process that many sessions share, one call at a time.

    What a process holds has ``begin(session, ...)``, ``end(session)``, and methods of its own that take the session
    first.

    Args:
        processes: so many are started before any is shared.
        sessions: the most sessions on one process.
    """

    name: ClassVar[str]
    target: ClassVar[str]
    """``"module:Class"`` of what a process holds."""
    call_timeout_s: ClassVar[float] = 60.0
    """A call that takes longer means that the process hangs: it is killed."""

    def __init__(self, processes: int, sessions: int) -> None:
        self._pool_key = (self.target, processes, sessions)
        self._child: Child | None = None
        self._session = f"s{uuid4().hex}"
        self._task: TaskT | None = None
        self._steps = 0

    def close(self) -> None:
        """End the session; its process stays warm."""
        self._task = None
        child, self._child = self._child, None
        if child is not None:
            if not child.dead:
                with suppress(InfrastructureError, RuntimeError):
                    child.call("end", self._session)
            _POOLS[self._pool_key].give_back(child)

    @classmethod
    def release(cls) -> None:
        """Stop the processes."""
        for pool in children_of(cls.target):
            pool.close()

    @classmethod
    def child_arguments(cls) -> Mapping[str, Any]:
        """Keyword arguments of what a process holds; asked for when the first one is made."""
        return {}

    def _begin(self, task: TaskT, *args: Any) -> Any:
        """Begin an episode.

        Args:
            task: what is running from now on.
            args: of ``begin`` in the process, after the session.
        """
        if self._child is None or self._child.dead:
            self.close()
            self._child = self._lease()
        shown = self._call("begin", *args)
        self._task = task
        self._steps = 0
        return shown

    def _call(self, method: str, *args: Any) -> Any:
        """Call a method in the process for this session.

        Raises:
            InfrastructureError: ``session_lost``: the process died.
        """
        assert self._child is not None
        return self._child.call(method, self._session, *args)

    def _running(self) -> TaskT:
        if self._task is None:
            raise RuntimeError(f"{self.name}: no episode is running; call reset")
        return self._task

    def _lease(self) -> Child:
        target, processes, sessions = self._pool_key
        pool = _POOLS.get(self._pool_key)
        if pool is None:
            make = partial(Child, target, dict(self.child_arguments()), call_timeout_s=self.call_timeout_s)
            pool = _POOLS.setdefault(self._pool_key, WarmPool(make, spread=processes, sessions=sessions))
        return pool.lease()
