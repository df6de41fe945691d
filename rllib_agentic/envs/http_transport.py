"""The way to an environment service by URL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.wire import (
    Answer,
    BatchAnswer,
    BatchRequest,
    ErrorAnswer,
    HealthAnswer,
    Patience,
    Request,
    SchemaAnswer,
    routing_key,
)
from rllib_agentic.errors import InputError

M = TypeVar("M", bound=BaseModel)


class HttpTransport:
    """HTTP to one base URL.

    Args:
        url: for example ``http://10.0.0.7:8000/frozenlake``; the protocol's paths (``/v1/...``) are appended.
        connect_timeout_s: longest wait for a connection.
        answer_timeout_s: longest wait for an answer, on top of the time that the service itself may wait.
        transport: another way to carry HTTP, for example to an ASGI application in this process.

    Raises:
        InputError: this is no http or https URL.
    """

    def __init__(
        self,
        url: str,
        connect_timeout_s: float = 5.0,
        answer_timeout_s: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise InputError(f"env_config.url: {url!r} is no URL: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise InputError(f"env_config.url: expected http://HOST:PORT/PATH, got {url!r}")
        self._url = url.rstrip("/")
        self._connect_timeout_s = connect_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._transport = transport
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def address(self) -> str:
        """The URL."""
        return self._url

    def lane(self, session_id: str) -> str:
        """The routing key: a call that spans workers would wait for the slowest of them."""
        return routing_key(session_id)

    async def health(self) -> HealthAnswer:
        """See :class:`Transport`."""
        return await self._call("GET", "/v1/health", HealthAnswer)

    async def schema(self) -> SchemaAnswer:
        """See :class:`Transport`."""
        return await self._call("GET", "/v1/schema", SchemaAnswer)

    async def batch(self, requests: Sequence[Request], patience: Patience) -> list[Answer]:
        """See :class:`Transport`. A batch that is too large is sent in halves."""
        body = BatchRequest(requests=list(requests), patience=patience).model_dump_json().encode()
        try:
            answers = (await self._call("POST", "/v1/batch", BatchAnswer, body, patience.wait_s)).answers
        except EnvFault as fault:
            if fault.code is FaultCode.TOO_LARGE and len(requests) > 1:
                half = len(requests) // 2
                return await self.batch(requests[:half], patience) + await self.batch(requests[half:], patience)
            return [ErrorAnswer.of(fault)] * len(requests)
        if len(answers) != len(requests):
            wrong = EnvFault(FaultCode.BAD_ANSWER, f"{len(answers)} answers for {len(requests)} requests")
            return [ErrorAnswer.of(wrong)] * len(requests)
        return answers

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _call(self, method: str, path: str, model: type[M], body: bytes | None = None, wait_s: float = 0.0) -> M:
        timeout = httpx.Timeout(self._answer_timeout_s + wait_s, connect=self._connect_timeout_s)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            response = await self._connected().request(
                method, f"{self._url}{path}", content=body, headers=headers, timeout=timeout
            )
        except httpx.HTTPError as error:
            text = f"{method} {self._url}{path}: {type(error).__name__} {error}".rstrip()
            raise EnvFault(FaultCode.UNREACHABLE, text) from error
        try:
            if response.status_code == httpx.codes.OK:
                return model.model_validate_json(response.content)
            fault = ErrorAnswer.model_validate_json(response.content).to_fault()
        except ValidationError:
            head = response.text[:200]
            fault = EnvFault(
                FaultCode.BAD_ANSWER,
                f"{method} {self._url}{path} answered with status {response.status_code} and a body that is not of "
                f"this protocol: {head!r}",
            )
        raise fault

    def _connected(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # connections belong to the loop that opened them
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
            self._client = httpx.AsyncClient(transport=self._transport, limits=limits)
            self._loop = loop
        return self._client
