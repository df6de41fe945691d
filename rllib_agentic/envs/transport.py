"""How requests reach a service, and how those that wait at the same moment travel together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from rllib_agentic.envs.wire import MAX_BATCH, Answer, HealthAnswer, PendingAnswer, Request, SchemaAnswer

FIRST_WAIT_S = 0.01
LONG_WAIT_S = 20.0


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

    async def batch(self, requests: Sequence[Request], wait_s: float) -> list[Answer]:
        """One answer a request, in their order. A call that fails gives each of its requests an error answer."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class Batcher:
    """Sends all requests that wait at this moment in one call a lane, with one call of a lane under way at a time.

    The service answers such a call within about :data:`FIRST_WAIT_S`: what is slower comes back pending and is
    waited for by a call of its own, so that a slow environment holds back no other.

    Args:
        transport: the way to the service.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._waiting: dict[str, list[tuple[Request, asyncio.Future[Answer]]]] = {}
        self._senders: set[asyncio.Task[None]] = set()

    async def ask(self, request: Request) -> Answer:
        """Send one request with whatever else is waiting; gives its final answer, never a pending one."""
        lane = self._transport.lane(request.session_id)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if lane in self._waiting:
            self._waiting[lane].append((request, future))
        else:
            self._waiting[lane] = [(request, future)]
            sender = asyncio.create_task(self._send(lane))
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        answer = await future
        while isinstance(answer, PendingAnswer):
            (answer,) = await self._transport.batch([request], LONG_WAIT_S)
        return answer

    async def _send(self, lane: str) -> None:
        entries: list[tuple[Request, asyncio.Future[Answer]]] = []
        try:
            await asyncio.sleep(0)  # whoever is ready now comes along
            while self._waiting[lane]:
                entries, self._waiting[lane] = self._waiting[lane][:MAX_BATCH], self._waiting[lane][MAX_BATCH:]
                answers = await self._transport.batch([request for request, _ in entries], FIRST_WAIT_S)
                for (_, future), answer in zip(entries, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        except BaseException as error:  # a bug or the loop's end: nobody may wait for ever
            for _, future in entries + self._waiting[lane]:
                if not future.done():
                    future.set_exception(error)
            raise
        finally:
            del self._waiting[lane]
