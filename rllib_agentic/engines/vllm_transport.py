"""Ways to the replicas of an engine: deployment handles within the cluster, HTTP from anywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import RayServeException

from rllib_agentic.engines.remote import RemoteEngine, TurnTransport

REPLICA_DEPLOYMENT = "InferenceReplica"
_LOST = (RayActorError, RayTaskError, RayServeException)


def connect(address: str) -> RemoteEngine:
    """The engine at an address; nothing is contacted before its first turn.

    Args:
        address: the URL of a gateway, or the name of a Serve application in this cluster.
    """
    is_url = address.startswith(("http://", "https://"))
    transport: TurnTransport = HttpTurns(address) if is_url else HandleTurns(address)
    return RemoteEngine(transport)


class HandleTurns:
    """Calls replicas by the application's handle; turns of one episode go to one replica, which has its cache.

    Args:
        app: the application's name.
    """

    def __init__(self, app: str) -> None:
        self._app = app
        self._handle: Any = serve.get_deployment_handle(REPLICA_DEPLOYMENT, app)

    async def turn(self, body: bytes, episode_id: str | None) -> bytes:
        """See :class:`~rllib_agentic.engines.remote.TurnTransport`."""
        handle = self._handle.options(session_id=episode_id) if episode_id else self._handle
        try:
            return await handle.turn.remote(body)
        except _LOST as error:
            raise ConnectionError(f"{self._app}: the replica gave no answer: {error}") from error

    async def watch(self, body: bytes) -> AsyncIterator[bytes]:
        """See :class:`~rllib_agentic.engines.remote.WatchedTurns`."""
        pieces = self._handle.options(stream=True).watch.remote(body)
        try:
            async for piece in pieces:
                yield piece
        except _LOST as error:
            raise ConnectionError(f"{self._app}: the replica gave no answer: {error}") from error
        finally:
            pieces.cancel()

    async def abort(self, episode_ids: list[str] | None) -> None:
        """See :class:`~rllib_agentic.engines.remote.TurnTransport`."""
        await self._handle.broadcast("abort", episode_ids).results_async(return_exceptions=True)

    async def aclose(self) -> None:
        """Nothing: handles belong to Serve."""


class HttpTurns:
    """Posts turns to a gateway.

    Args:
        url: the gateway's, with the application's route.
        timeout_s: longest time for one turn.
    """

    def __init__(self, url: str, timeout_s: float = 600.0) -> None:
        self._url = url.rstrip("/")
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(timeout_s, connect=10.0), limits=httpx.Limits(max_connections=512)
        )

    async def turn(self, body: bytes, episode_id: str | None) -> bytes:
        """See :class:`~rllib_agentic.engines.remote.TurnTransport`."""
        headers = {"content-type": "application/json"} | ({"x-session-id": episode_id} if episode_id else {})
        try:
            answer = await self._client.post(f"{self._url}/v1/turn", content=body, headers=headers)
        except httpx.TransportError as error:
            raise ConnectionError(f"{self._url}: {type(error).__name__}: {error}") from error
        if answer.status_code in (502, 503, 504):
            raise ConnectionError(f"{self._url}: HTTP {answer.status_code}: {answer.text[:200]}")
        return answer.content

    async def abort(self, episode_ids: list[str] | None) -> None:
        """See :class:`~rllib_agentic.engines.remote.TurnTransport`."""
        try:
            await self._client.post(f"{self._url}/v1/abort", json={"episode_ids": episode_ids})
        except httpx.TransportError:
            return  # who cannot be reached runs no turn of ours

    async def aclose(self) -> None:
        """Close connections."""
        await self._client.aclose()
