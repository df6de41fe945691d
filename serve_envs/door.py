"""A worker's own port: batches come straight to it, past Serve's proxy and router."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from pydantic import ValidationError

from rllib_agentic.envs import wire
from rllib_agentic.envs.faults import HTTP_STATUS, EnvFault, FaultCode

_LEAVE_S = 1.0  # for requests under way while the door closes


class Door:
    """An HTTP server for one worker, with ``/v1/health`` and ``/v1/batch`` of the protocol.

    Args:
        health: gives a :class:`wire.HealthAnswer`.
        batch: takes a :class:`wire.BatchRequest`, gives a :class:`wire.BatchAnswer`.
    """

    def __init__(self, health: Callable[[], Awaitable[bytes]], batch: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._health = health
        self._batch = batch
        self._sends_away = False
        app = web.Application(client_max_size=wire.MAX_BODY_BYTES)
        app.add_routes([web.get("/v1/health", self._answer_health), web.post("/v1/batch", self._answer_batch)])
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_LEAVE_S)

    async def open(self, host: str) -> str:
        """Listen on a free port.

        Args:
            host: the address to listen on, and the one that clients are told.

        Returns:
            The URL.

        Raises:
            OSError: nothing can listen there.
        """
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, 0).start()
        except OSError:
            await self._runner.cleanup()
            raise
        port = self._runner.addresses[0][1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def send_away(self) -> None:
        """Whoever comes from now on is to go through the service: the worker is about to stop."""
        self._sends_away = True

    async def close(self) -> None:
        """Stop listening, and end the connections."""
        await self._runner.cleanup()

    async def _answer_health(self, request: web.Request) -> web.Response:
        return _json(await self._health())

    async def _answer_batch(self, request: web.Request) -> web.Response:
        if self._sends_away:
            return _refuse(FaultCode.UNREACHABLE, "this worker is about to stop; ask the service")
        try:
            return _json(await self._batch(await request.read()))
        except web.HTTPRequestEntityTooLarge:
            return _refuse(FaultCode.TOO_LARGE, f"the body is too large; the most is {wire.MAX_BODY_BYTES} bytes")
        except ValidationError as error:
            return _refuse(FaultCode.BAD_INPUT, f"{request.path}: {error}")


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _refuse(code: FaultCode, text: str) -> web.Response:
    return _json(wire.ErrorAnswer.of(EnvFault(code, text)).model_dump_json().encode(), HTTP_STATUS[code])
