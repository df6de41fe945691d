"""Sessions on a service: ids, step numbers, retries, and what each fault means to the rollout."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import ValidationError

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.retries import WORTH_ANOTHER_SESSION, RetryPolicy
from rllib_agentic.envs.session import OpenedSession
from rllib_agentic.envs.transport import Batcher, Transport
from rllib_agentic.envs.wire import (
    PROTOCOL_VERSION,
    Answer,
    CloseRequest,
    CreateAnswer,
    CreateRequest,
    ErrorAnswer,
    Request,
    StepAnswer,
    StepRequest,
)
from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.trajectory.trajectory import Task

T = TypeVar("T")
_log = logging.getLogger(__name__)
_TRANSIENT = (FaultCode.UNREACHABLE, FaultCode.BAD_ANSWER)
_WORKER_MAY_BE_GONE = (*_TRANSIENT, FaultCode.UNKNOWN_SESSION, FaultCode.SESSION_CLOSED)
_LOOK_AGAIN_S = 30.0  # for workers: some may have joined


class RemoteClient:
    """An :class:`EnvClient` over a transport.

    Args:
        transport: the way to the service.
        retries: how often to try again.
    """

    def __init__(self, transport: Transport, retries: RetryPolicy | None = None) -> None:
        self._transport = transport
        self._retries = retries or RetryPolicy()
        self._batcher = Batcher(transport)
        self._open: set[str] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._workers: list[str] = []
        self._found_at = 0.0
        self._search: asyncio.Task[None] | None = None
        self._turn = count()

    async def schema(self) -> EnvSchema:
        """Ask the environment what it is (see :class:`EnvClient`)."""
        answer = await self._retried(self._transport.schema)
        if answer.protocol != PROTOCOL_VERSION:
            raise InfrastructureError(
                "env_error",
                f"environment {self._transport.address}: speaks protocol {answer.protocol}, "
                f"this client speaks {PROTOCOL_VERSION}",
            )
        return answer.env

    async def create(self, task: Task) -> RemoteSession:
        """Open a session for a task and reset it (see :class:`EnvClient`).

        A reset that fails is tried again in a new session, a bounded number of times. A full service is waited for.
        """
        failures, refusals, waited_s = 0, 0, 0.0
        while True:
            try:
                return await self._create_once(task)
            except EnvFault as fault:
                if fault.code is FaultCode.FULL and waited_s < self._retries.full_patience_s:
                    refusals += 1
                    if refusals % max(1, len(self._workers)) == 0:  # every worker was asked
                        pause_s = fault.retry_after_s or 1.0
                        waited_s += pause_s
                        await self._retries.sleep(pause_s)
                elif fault.code in WORTH_ANOTHER_SESSION and failures < self._retries.max_retries:
                    failures += 1
                    await self._retries.pause(failures)
                else:
                    raise fault.to_client_error(self._transport.address) from fault

    async def aclose(self) -> None:
        """Close open sessions and connections."""
        for session_id in list(self._open):
            self.close_soon(session_id)
        await asyncio.gather(*self._closing)
        if self._search is not None:
            self._search.cancel()
        await self._transport.aclose()

    async def ask(self, request: Request) -> Answer:
        """Send a request until it is answered, or tries run out.

        Raises:
            EnvFault: what the service said, or ``unreachable`` / ``bad_answer`` after the last try.
        """
        attempt = 0
        while True:
            answer = await self._batcher.ask(request)
            if not isinstance(answer, ErrorAnswer):
                return answer
            if answer.error.code in _WORKER_MAY_BE_GONE:
                self._workers = []  # search again before the next create
            if answer.error.code not in _TRANSIENT or attempt == self._retries.max_retries:
                raise answer.to_fault()
            attempt += 1
            await self._retries.pause(attempt)

    def close_soon(self, session_id: str) -> asyncio.Task[None]:
        """Close a session in the background; :meth:`aclose` waits for it."""
        task = asyncio.create_task(self._close(session_id))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    @property
    def address(self) -> str:
        """The service, for messages."""
        return self._transport.address

    async def _create_once(self, task: Task) -> RemoteSession:
        session_id = f"{await self._next_worker()}.{uuid4().hex}"
        try:
            request = CreateRequest(session_id=session_id, split=task.split, index=task.index, seed=task.seed)
        except ValidationError as error:
            raise InputError(f"environment {self.address}: {task!r} is no task: {error}") from None
        self._open.add(session_id)
        try:
            answer = await self.ask(request)
        except EnvFault:
            self._open.discard(session_id)
            raise
        except asyncio.CancelledError:
            self.close_soon(session_id)
            raise
        if not isinstance(answer, CreateAnswer) or (answer.session_id, answer.split, answer.index, answer.seed) != (
            session_id,
            task.split,
            task.index,
            task.seed,
        ):
            self.close_soon(session_id)
            raise EnvFault(FaultCode.BAD_ANSWER, f"asked for {request!r}, the answer echoes something else: {answer!r}")
        return RemoteSession(self, session_id, answer.observation)

    async def _next_worker(self) -> str:
        while not self._workers:
            await asyncio.shield(self._look_for_workers())  # one search, however many creates wait for it
        if time.monotonic() - self._found_at > _LOOK_AGAIN_S:
            self._look_for_workers()  # beside the creates, on the workers known so far
        return self._workers[next(self._turn) % len(self._workers)]

    def _look_for_workers(self) -> asyncio.Task[None]:
        if self._search is None:
            self._search = asyncio.create_task(self._find_workers())
            self._search.add_done_callback(_mark_as_seen)
        return self._search

    async def _find_workers(self) -> None:
        try:
            health = await self._retried(self._transport.health)
            if not health.workers:
                raise InfrastructureError("env_unreachable", f"environment {self.address}: no worker answers")
            self._workers = sorted(worker.worker_id for worker in health.workers)
            self._found_at = time.monotonic()
        finally:
            self._search = None

    async def _retried(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        attempt = 0
        while True:
            try:
                return await call()
            except EnvFault as fault:
                if fault.code not in _TRANSIENT or attempt == self._retries.max_retries:
                    raise fault.to_client_error(self._transport.address) from fault
            attempt += 1
            await self._retries.pause(attempt)

    async def _close(self, session_id: str) -> None:
        self._open.discard(session_id)
        try:
            await self.ask(CloseRequest(session_id=session_id))
        except EnvFault as fault:
            _log.warning(
                "environment %s: session %s could not be closed (%s); its time to live will",
                self.address,
                session_id,
                fault,
            )


class RemoteSession(OpenedSession):
    """An :class:`EnvSession` on a service. Made by :meth:`RemoteClient.create`."""

    def __init__(self, client: RemoteClient, session_id: str, first: Observation) -> None:
        super().__init__(session_id, first)
        self._client = client
        self._steps = 0

    async def step(self, action: str) -> StepResult:
        """Send one action (see :class:`EnvSession`)."""
        try:
            request = StepRequest(session_id=self._session_id, step=self._steps + 1, action=action)
        except ValidationError as error:
            raise InputError(f"environment {self._client.address}: this action cannot be sent: {error}") from None
        try:
            answer = await self._client.ask(request)
        except EnvFault as fault:
            raise fault.to_client_error(self._client.address) from fault
        if not isinstance(answer, StepAnswer) or (answer.session_id, answer.step) != (self._session_id, request.step):
            raise InfrastructureError(
                "env_error", f"environment {self._client.address}: {answer!r} answers {request!r}"
            )
        self._steps += 1
        return answer.result

    async def close(self) -> None:
        """End the session (see :class:`EnvSession`)."""
        await asyncio.shield(self._client.close_soon(self._session_id))


def _mark_as_seen(search: asyncio.Task[None]) -> None:
    """A search that nobody waits for may fail: what was known stays, and the next create searches again."""
    if not search.cancelled():
        search.exception()
