"""The way to an environment service by URL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from rllib_agentic.envs.doors import Doors
from rllib_agentic.envs.faults import FaultCode
from rllib_agentic.envs.http_connection import HttpConnection, bad_answer
from rllib_agentic.envs.transport import answers_to
from rllib_agentic.envs.wire import (
    Answer,
    BatchAnswer,
    ErrorAnswer,
    HealthAnswer,
    MetricsAnswer,
    Patience,
    Request,
    ResetAnswer,
    SchemaAnswer,
    routing_key,
)

M = TypeVar("M", bound=BaseModel)


class HttpTransport:
    """HTTP to one base URL.

    Batches go straight to a worker's own port once :meth:`health` has told of it, where it can be reached from here.

    Args:
        url: for example ``http://10.0.0.7:8000/frozenlake``; the protocol's paths (``/v1/...``) are appended.
        connect_timeout_s: longest wait for a connection.
        answer_timeout_s: longest wait for an answer, on top of the time that the service itself may wait.
        transport: another way to carry HTTP, for example to an ASGI application in this process.
        direct: whether to use the workers' own ports; never behind https or another ``transport``.

    Raises:
        InputError: this is no http or https URL.
    """

    def __init__(
        self,
        url: str,
        connect_timeout_s: float = 5.0,
        answer_timeout_s: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
        direct: bool = True,
    ) -> None:
        self._connection = HttpConnection(url, connect_timeout_s, transport)
        self._doors = Doors() if direct and transport is None and url.startswith("http://") else None
        self._answer_timeout_s = answer_timeout_s

    @property
    def address(self) -> str:
        """The URL."""
        return self._connection.url

    def lane(self, session_id: str) -> str:
        """The routing key: a call that spans workers would wait for the slowest of them."""
        return routing_key(session_id)

    async def health(self) -> HealthAnswer:
        """See :class:`Transport`."""
        answer = await self._call("GET", "/v1/health", HealthAnswer)
        if self._doors is not None:
            self._doors.learn(answer.workers)
        return answer

    async def metrics(self) -> MetricsAnswer:
        """What the service's workers did.

        Raises:
            EnvFault: ``unreachable`` or ``bad_answer``.
        """
        return await self._call("GET", "/v1/metrics", MetricsAnswer)

    async def full_reset(self) -> ResetAnswer:
        """End all sessions of the service, whoever opened them, and free what they share.

        Raises:
            EnvFault: ``unreachable`` or ``bad_answer``.
        """
        return await self._call("POST", "/v1/full_reset", ResetAnswer)

    async def schema(self) -> SchemaAnswer:
        """See :class:`Transport`."""
        return await self._call("GET", "/v1/schema", SchemaAnswer)

    async def batch(self, requests: Sequence[Request], patience: Patience) -> list[Answer]:
        """See :class:`Transport`. A batch that is too large is sent in halves."""
        keys = {routing_key(request.session_id) for request in requests}

        async def send(body: bytes) -> BatchAnswer:
            if self._doors is not None and len(keys) == 1:
                timeout_s = self._answer_timeout_s + patience.wait_s
                if (answer := await self._doors.batch(min(keys), body, timeout_s)) is not None:
                    return answer
            return await self._call("POST", "/v1/batch", BatchAnswer, body, patience.wait_s)

        answers = await answers_to(requests, patience, send)
        first = answers[0] if answers else None
        if len(requests) > 1 and isinstance(first, ErrorAnswer) and first.error.code is FaultCode.TOO_LARGE:
            half = len(requests) // 2
            return await self.batch(requests[:half], patience) + await self.batch(requests[half:], patience)
        return answers

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()
        if self._doors is not None:
            await self._doors.aclose()

    async def _call(self, method: str, path: str, model: type[M], body: bytes | None = None, wait_s: float = 0.0) -> M:
        response = await self._connection.send(method, path, body, self._answer_timeout_s + wait_s)
        try:
            if response.status_code == httpx.codes.OK:
                return model.model_validate_json(response.content)
            fault = ErrorAnswer.model_validate_json(response.content).to_fault()
        except ValidationError:
            fault = bad_answer(response, "of this protocol")
        raise fault
