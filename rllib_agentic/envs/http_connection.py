"""HTTP to one base URL, for whatever dialect is spoken there."""

from __future__ import annotations

import asyncio

import httpx

from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.errors import InputError


class HttpConnection:
    """Requests to one service. Usable from one asyncio loop at a time.

    Args:
        url: base URL; the paths of requests are appended.
        connect_timeout_s: longest wait for a connection.
        transport: another way to carry HTTP, for example to an ASGI application in this process.

    Raises:
        InputError: this is no http or https URL.
    """

    def __init__(
        self, url: str, connect_timeout_s: float = 5.0, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise InputError(f"env_config.url: {url!r} is no URL: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise InputError(f"env_config.url: expected http://HOST:PORT/PATH, got {url!r}")
        self.url = url.rstrip("/")
        self._connect_timeout_s = connect_timeout_s
        self._transport = transport
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, method: str, path: str, body: bytes | None, timeout_s: float) -> httpx.Response:
        """One request with a JSON body, or none.

        Raises:
            EnvFault: ``unreachable``: no answer came.
        """
        timeout = httpx.Timeout(timeout_s, connect=self._connect_timeout_s)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            return await self._connected().request(
                method, f"{self.url}{path}", content=body, headers=headers, timeout=timeout
            )
        except httpx.HTTPError as error:
            text = f"{method} {self.url}{path}: {type(error).__name__} {error}".rstrip()
            raise EnvFault(FaultCode.UNREACHABLE, text) from error

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _connected(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # connections belong to the loop that opened them
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
            self._client = httpx.AsyncClient(transport=self._transport, limits=limits)
            self._loop = loop
        return self._client


def bad_answer(response: httpx.Response, expected: str) -> EnvFault:
    """The fault of an answer that is not of the dialect: a login page, a proxy's error, half a body."""
    request = response.request
    return EnvFault(
        FaultCode.BAD_ANSWER,
        f"{request.method} {request.url} answered with status {response.status_code} and a body that is not "
        f"{expected}: {response.text[:200]!r}",
    )
