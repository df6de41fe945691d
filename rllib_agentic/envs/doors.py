"""Straight ways to the workers of a service, past Serve's proxy and router, for clients that can reach them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import aiohttp
from pydantic import ValidationError

from rllib_agentic.envs.faults import HTTP_STATUS, EnvFault, FaultCode
from rllib_agentic.envs.wire import MAX_BODY_BYTES, BatchAnswer, ErrorAnswer, HealthAnswer, WorkerHealth

_CONNECT_TIMEOUT_S = 1.0
_JSON = {"Content-Type": "application/json"}
_log = logging.getLogger(__name__)


class Doors:
    """Connections to the ports that workers open themselves. Usable from one asyncio loop at a time.

    A door is used once it has said that it is the worker it is said to be: an address may lead elsewhere from where
    the client is. One that cannot be reached, or fails, is left alone until it is learned of again.
    """

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._checks: dict[str, asyncio.Task[bool]] = {}
        self._http: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def learn(self, workers: Iterable[WorkerHealth]) -> None:
        """Take what the service says about its workers for all there is."""
        self._addresses = {worker.worker_id: worker.address for worker in workers if worker.address is not None}

    async def batch(self, worker_id: str, body: bytes, timeout_s: float) -> BatchAnswer | None:
        """Send a :class:`BatchRequest` to a worker; None where no open door leads to it, so go another way.

        Where a connection breaks, the worker may have done what was asked: its protocol allows to ask again.

        Raises:
            EnvFault: what the worker says, ``bad_answer``, or ``unreachable`` where it does not answer in time.
        """
        address = self._addresses.get(worker_id)
        if len(body) > MAX_BODY_BYTES or address is None or not await self._is_open(worker_id, address):
            return None
        url = f"{address}/v1/batch"
        try:
            status, content = await self._request("POST", url, body, timeout_s)
            if status == HTTP_STATUS[FaultCode.UNREACHABLE]:
                raise aiohttp.ClientConnectionError("the worker is about to stop")
        except aiohttp.ClientError as error:
            _log.info("%s: %r; its worker is now asked through the service", url, error)
            self._forget(worker_id)
            return None
        except TimeoutError:
            raise EnvFault(FaultCode.UNREACHABLE, f"{url} did not answer within {timeout_s:g} s") from None
        try:
            if status == 200:
                return BatchAnswer.model_validate_json(content)
            fault = ErrorAnswer.model_validate_json(content).to_fault()
        except ValidationError:
            fault = EnvFault(FaultCode.BAD_ANSWER, f"{url} answered with status {status} and {content[:200]!r}")
        raise fault

    async def aclose(self) -> None:
        """Close the connections."""
        http, self._http = self._http, None
        for check in self._checks.values():
            check.cancel()
        self._checks.clear()
        if http is not None:
            await http.close()

    async def _is_open(self, worker_id: str, address: str) -> bool:
        self._connected()
        if worker_id not in self._checks:
            self._checks[worker_id] = asyncio.create_task(self._check(worker_id, address))
        if await asyncio.shield(self._checks[worker_id]):  # one check, however many batches wait for it
            return True
        self._forget(worker_id)
        return False

    async def _check(self, worker_id: str, address: str) -> bool:
        try:
            status, content = await self._request("GET", f"{address}/v1/health", None, _CONNECT_TIMEOUT_S)
            workers = HealthAnswer.model_validate_json(content).workers if status == 200 else []
        except (aiohttp.ClientError, TimeoutError, ValidationError) as error:
            _log.info("%s leads not to worker %s from here (%r); it is asked through the service",
                      address, worker_id, error)  # fmt: skip
            return False
        return [worker.worker_id for worker in workers] == [worker_id]

    def _forget(self, worker_id: str) -> None:
        self._addresses.pop(worker_id, None)
        self._checks.pop(worker_id, None)

    async def _request(self, method: str, url: str, body: bytes | None, timeout_s: float) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_TIMEOUT_S)
        headers = _JSON if body is not None else None
        async with self._connected().request(
            method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            return response.status, await response.read()

    def _connected(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:  # connections belong to the loop that opened them
            self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)
            self._loop = loop
            self._checks.clear()
        return self._http
