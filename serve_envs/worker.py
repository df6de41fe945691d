"""A worker: the sessions of one process, their slots and their time to live. Plain Python, no Ray."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.hosting import EnvHost
from rllib_agentic.envs.wire import (
    ActRequest,
    Answer,
    CloseAnswer,
    CloseRequest,
    CreateAnswer,
    CreateRequest,
    ErrorAnswer,
    HealthAnswer,
    MetricsAnswer,
    Patience,
    PendingAnswer,
    Request,
    ResetAnswer,
    RestartRequest,
    SchemaAnswer,
    StateRequest,
    StepAnswer,
    StepRequest,
    WorkerHealth,
)
from serve_envs.session import Session
from serve_envs.tally import Tally

T = TypeVar("T")
_REMEMBERED_ENDS = 16_384
_CLOSE_GRACE_S = 5.0  # for environments that are closing; calls that are stuck are left behind
_FATAL = (FaultCode.ENV_FAILED, FaultCode.ENV_TIMEOUT, FaultCode.ENV_LOST, FaultCode.BAD_INPUT)


class _End(NamedTuple):
    request: Request | None
    fault: EnvFault


class EnvWorker:
    """Holds sessions and answers their requests. Every path that ends a session frees its slot at once.

    Args:
        host: makes the environments.
        worker_id: a routing key that leads to this worker.
        max_sessions: slots; a create beyond them is answered ``full``.
        ttl_s: a session without a request for this long is closed.
        clock: seconds, never going back.
        address: of a port of the worker's own, where it has one.
    """

    address: str | None = None

    def __init__(
        self,
        host: EnvHost,
        worker_id: str = "local",
        max_sessions: int = 256,
        ttl_s: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._worker_id = worker_id
        self._max_sessions = max_sessions
        self._ttl_s = ttl_s
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._ended: OrderedDict[str, _End] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._tally = Tally()
        self._stopping = False

    async def health(self) -> HealthAnswer:
        """Answers at once, whatever the environments do."""
        return HealthAnswer(
            env=self._host.schema.name,
            workers=[
                WorkerHealth(
                    worker_id=self._worker_id,
                    sessions=len(self._sessions),
                    max_sessions=self._max_sessions,
                    stuck_calls=self._host.stuck_calls,
                    address=self.address,
                )
            ],
        )

    async def metrics(self) -> MetricsAnswer:
        """What this worker did since it began."""
        counted = self._tally.counted(self._worker_id, len(self._sessions), self._host.stuck_calls)
        return MetricsAnswer(env=self._host.schema.name, workers=[counted])

    async def full_reset(self) -> ResetAnswer:
        """End every session and free what they share: the next one begins in a world that nobody has touched."""
        closed = self._end_all("a full reset")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_GRACE_S)
        await asyncio.to_thread(self._host.release)
        return ResetAnswer(sessions_closed=closed)

    async def schema(self) -> SchemaAnswer:
        """The environment, and the limits of this service."""
        return SchemaAnswer(env=self._host.schema, ttl_s=self._ttl_s, call_timeout_s=self._host.call_timeout_s)

    async def batch(self, requests: Sequence[Request], patience: Patience) -> list[Answer]:
        """Answer many requests at once, each on its own; what takes longer than ``patience`` is ``pending``.

        A request goes on when its caller goes away: nothing is left half done.
        """
        self._start_sweeper()
        if self._host.quick:
            return [_at_once(self._answer(request)) for request in requests]
        tasks = [self._spawn(self._answer(request)) for request in requests]
        if tasks:
            began = self._clock()
            await asyncio.wait(tasks, timeout=patience.wait_s, return_when=asyncio.FIRST_COMPLETED)
            left_s = max(0.0, patience.wait_s - (self._clock() - began))
            await asyncio.wait(tasks, timeout=min(patience.linger_s, left_s))
        return [
            task.result() if task.done() else PendingAnswer(session_id=request.session_id)
            for task, request in zip(tasks, requests, strict=True)
        ]

    def sweep(self) -> int:
        """Close the sessions that have been idle for too long; returns how many."""
        expired = [session for session in self._sessions.values() if session.idle_s > self._ttl_s]
        for session in expired:
            text = f"session {session.request.session_id!r} was closed after {self._ttl_s:g} s without a request"
            self._end(session, _End(None, EnvFault(FaultCode.SESSION_CLOSED, text)))
        self._tally.sessions_expired += len(expired)
        return len(expired)

    async def aclose(self) -> None:
        """Close all sessions, free what they share, and stop the sweeper. New sessions are refused from now on."""
        self._stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._end_all("the service was stopped")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_GRACE_S)
        await asyncio.to_thread(self._host.release)

    def _end_all(self, why: str) -> int:
        sessions = list(self._sessions.values())
        for session in sessions:
            text = f"session {session.request.session_id!r}: {why}"
            self._end(session, _End(None, EnvFault(FaultCode.SESSION_CLOSED, text)))
        return len(sessions)

    async def _answer(self, request: Request) -> Answer:
        try:
            match request:
                case CreateRequest():
                    return await self._create(request)
                case StepRequest():
                    return await self._step(request)
                case StateRequest():
                    return self._session(request).state()
                case CloseRequest():
                    return self._close(request)
                case RestartRequest():
                    return await self._restart(request)
                case ActRequest():
                    return await self._act(request)
        except EnvFault as fault:
            self._tally.failed(fault.code)
            return ErrorAnswer.of(fault)

    async def _create(self, request: CreateRequest) -> CreateAnswer:
        session = self._sessions.get(request.session_id)
        if session is None:
            if request.session_id in self._ended:
                raise self._end_of(request)
            self._host.check_task(request.split, request.index)
            self._require_slot()
            session = Session(request, self._host.open(), self._clock)
            self._sessions[request.session_id] = session
        with self._tally.reset():
            return await self._or_end(session, request, session.create(request))

    async def _restart(self, request: RestartRequest) -> CreateAnswer:
        self._host.check_task(request.split, request.index)
        end = self._ended.get(request.session_id)
        if end is not None and (end.request == request or end.fault.code is FaultCode.SESSION_CLOSED):
            raise self._end_of(request)
        begin = CreateRequest.model_validate(request.model_dump(exclude={"op", "nonce"}))
        session = self._sessions.get(request.session_id)
        if session is None or session.nonce != request.nonce:
            if session is None:
                self._require_slot()
            else:
                self._spawn(session.close())
            session = Session(begin, self._host.open(), self._clock, request.nonce)
            self._ended.pop(request.session_id, None)
            self._sessions[request.session_id] = session
        with self._tally.reset():
            return await self._or_end(session, request, session.create(begin))

    async def _step(self, request: StepRequest) -> StepAnswer:
        session = self._session(request)
        with self._tally.step():
            return await self._or_end(session, request, session.step(request))

    async def _act(self, request: ActRequest) -> StepAnswer:
        session = self._session(request)
        with self._tally.step():
            return await self._or_end(session, request, session.act(request))

    def _close(self, request: CloseRequest) -> CloseAnswer:
        session = self._sessions.get(request.session_id)
        end = _End(None, EnvFault(FaultCode.SESSION_CLOSED, f"session {request.session_id!r} is closed"))
        if session is not None:
            self._end(session, end)
        elif request.session_id not in self._ended:
            self._remember(request.session_id, end)  # a create that arrives after its close must not open it
        return CloseAnswer(session_id=request.session_id, was_open=session is not None)

    async def _or_end(self, session: Session, request: Request, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await work
        except EnvFault as fault:
            if fault.code in _FATAL:
                self._end(session, _End(request, fault))
            elif fault.code is FaultCode.SESSION_CLOSED and request.session_id in self._ended:
                raise self._end_of(request) from None  # it ended while this request waited: say how
            raise

    def _session(self, request: Request) -> Session:
        session = self._sessions.get(request.session_id)
        if session is not None:
            return session
        if request.session_id in self._ended:
            raise self._end_of(request)
        raise EnvFault(FaultCode.UNKNOWN_SESSION, f"no session {request.session_id!r} on this service")

    def _end_of(self, request: Request) -> EnvFault:
        end = self._ended[request.session_id]
        if end.request == request or end.fault.code is FaultCode.SESSION_CLOSED:
            return end.fault
        return EnvFault(FaultCode.SESSION_CLOSED, f"session {request.session_id!r} ended: {end.fault}")

    def _require_slot(self) -> None:
        if self._stopping:
            raise EnvFault(FaultCode.UNREACHABLE, f"worker {self._worker_id!r} is stopping; others take new sessions")
        if len(self._sessions) >= self._max_sessions:
            self.sweep()
        if len(self._sessions) >= self._max_sessions:
            raise EnvFault(
                FaultCode.FULL,
                f"all {self._max_sessions} sessions of worker {self._worker_id!r} are taken; close some, wait, "
                f"or raise max_sessions or num_replicas",
                retry_after_s=1.0,
            )

    def _end(self, session: Session, end: _End) -> None:
        session_id = session.request.session_id
        if self._sessions.get(session_id) is session:
            del self._sessions[session_id]
            self._remember(session_id, end)
            self._spawn(session.close())

    def _remember(self, session_id: str, end: _End) -> None:
        self._ended[session_id] = end
        if len(self._ended) > _REMEMBERED_ENDS:
            self._ended.popitem(last=False)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _start_sweeper(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep_for_ever())

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(min(self._ttl_s / 4, 10.0))
            self.sweep()


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a request to a quick environment: it waits for nothing, so it needs no task."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    work.close()
    raise RuntimeError("a request to a quick environment waited for something")
