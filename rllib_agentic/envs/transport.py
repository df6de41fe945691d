"""How requests reach a service, and how those that wait at the same moment travel together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.wire import (
    MAX_BATCH,
    Answer,
    BatchAnswer,
    BatchRequest,
    ErrorAnswer,
    HealthAnswer,
    Patience,
    PendingAnswer,
    Request,
    SchemaAnswer,
)

_FIRST = Patience(wait_s=0.01, linger_s=0.01)
_LATER = Patience(wait_s=20.0, linger_s=0.01)


class Transport(Protocol):
    """One way to one service."""

    @property
    def address(self) -> str:
        """The service, for messages."""
        ...

    def lane(self, session_id: str) -> str:
        """Sessions of one lane can travel in one call."""
        ...

    async def health(self) -> HealthAnswer:
        """The workers that answer at once.

        Raises:
            EnvFault: ``unreachable`` or ``bad_answer``.
        """
        ...

    async def schema(self) -> SchemaAnswer:
        """The environment and the service's limits.

        Raises:
            EnvFault: ``unreachable`` or ``bad_answer``.
        """
        ...

    async def batch(self, requests: Sequence[Request], patience: Patience) -> list[Answer]:
        """One answer a request, in their order. A call that fails gives each of its requests an error answer."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


async def answers_to(
    requests: Sequence[Request], patience: Patience, send: Callable[[bytes], Awaitable[BatchAnswer]]
) -> list[Answer]:
    """One answer a request through one call; a call that fails gives each of its requests an error answer.

    Args:
        requests: what to ask.
        patience: how long the service may wait.
        send: takes the body of a :class:`BatchRequest`; raises :class:`EnvFault` where the call fails.
    """
    body = BatchRequest(requests=list(requests), patience=patience).model_dump_json().encode()
    try:
        answers = (await send(body)).answers
    except EnvFault as fault:
        return [ErrorAnswer.of(fault)] * len(requests)
    if len(answers) != len(requests):
        wrong = EnvFault(FaultCode.BAD_ANSWER, f"{len(answers)} answers for {len(requests)} requests")
        return [ErrorAnswer.of(wrong)] * len(requests)
    return answers


class _Waiting(NamedTuple):
    request: Request
    answer: asyncio.Future[Answer]


class Batcher:
    """Sends all requests that wait at this moment in one call a lane, with one such call of a lane under way.

    The service answers it at once with what is ready. The slow rest of a call is waited for by calls of its own,
    which come back with whatever becomes ready: a slow environment holds back no other.

    Args:
        transport: the way to the service.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lanes: dict[str, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, request: Request) -> Answer:
        """Send one request with whatever else is waiting; gives its final answer, never a pending one."""
        lane = self._transport.lane(request.session_id)
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        if lane in self._lanes:
            self._lanes[lane].append(waiting)
        else:
            self._lanes[lane] = [waiting]
            self._spawn(self._drain(lane))
        return await waiting.answer

    async def _drain(self, lane: str) -> None:
        try:
            while batch := self._lanes[lane][:MAX_BATCH]:
                del self._lanes[lane][:MAX_BATCH]
                if slow := await self._send(batch, _FIRST):
                    self._spawn(self._follow(slow))
        except BaseException as error:
            _fail(self._lanes[lane], error)
            raise
        finally:
            del self._lanes[lane]

    async def _follow(self, batch: list[_Waiting]) -> None:
        while batch:
            batch = await self._send(batch, _LATER)

    async def _send(self, batch: list[_Waiting], patience: Patience) -> list[_Waiting]:
        try:
            answers = await self._transport.batch([waiting.request for waiting in batch], patience)
        except BaseException as error:  # a bug, or the loop ends: nobody may wait for ever
            _fail(batch, error)
            raise
        slow = []
        for waiting, answer in zip(batch, answers, strict=True):
            if waiting.answer.done():
                continue  # its caller was cancelled
            if isinstance(answer, PendingAnswer):
                slow.append(waiting)
            else:
                waiting.answer.set_result(answer)
        return slow

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _fail(batch: Sequence[_Waiting], error: BaseException) -> None:
    for waiting in batch:
        if not waiting.answer.done():
            waiting.answer.set_exception(error)
