"""A worker in a Serve replica: the wire's JSON in, the wire's JSON out, and figures for dashboards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import ray
from ray import serve

from rllib_agentic.envs import wire
from rllib_agentic.envs.env import Env
from rllib_agentic.envs.hosting import EnvHost
from rllib_agentic.envs.settings import EnvSettings
from serve_envs.autoscaling import SESSIONS
from serve_envs.door import Door
from serve_envs.exporter import MetricsExporter
from serve_envs.lease import Lease
from serve_envs.worker import EnvWorker

_EXPORT_PERIOD_S = 5.0
_LEASE_PERIOD_S = 5.0
_log = logging.getLogger(__name__)


class EnvReplica:
    """A worker in a Serve replica. Bodies are the wire's JSON in UTF-8: cheaper than pickled models, and checked.

    Args:
        make: makes a new environment object at each call.
        settings: slots, time to live, time limit.
        lease: the application is deleted when this is over.
    """

    def __init__(self, make: Callable[[], Env], settings: EnvSettings, lease: Lease | None = None) -> None:
        context = serve.get_replica_context()
        self._app = context.app_name
        self._worker = EnvWorker(
            EnvHost(make, settings.call_timeout_s),
            worker_id=context.replica_tag,
            max_sessions=settings.max_sessions,
            ttl_s=settings.ttl_s,
        )
        self._direct = settings.direct
        self._door: Door | None = None
        self._lease = lease
        self._chores: list[asyncio.Task[None]] = []

    async def health(self) -> bytes:
        """A :class:`wire.HealthAnswer` with this worker in it."""
        return (await self._worker.health()).model_dump_json().encode()

    async def metrics(self) -> bytes:
        """A :class:`wire.MetricsAnswer` with this worker in it."""
        return (await self._worker.metrics()).model_dump_json().encode()

    async def schema(self) -> bytes:
        """A :class:`wire.SchemaAnswer`."""
        return (await self._worker.schema()).model_dump_json().encode()

    async def full_reset(self) -> bytes:
        """A :class:`wire.ResetAnswer` for this worker."""
        return (await self._worker.full_reset()).model_dump_json().encode()

    async def batch(self, body: bytes) -> bytes:
        """A :class:`wire.BatchRequest` in, a :class:`wire.BatchAnswer` out."""
        request = wire.BatchRequest.model_validate_json(body)
        answers = await self._worker.batch(request.requests, request.patience)
        return wire.BatchAnswer(answers=answers).model_dump_json().encode()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Called by Serve where replicas come and go by load: live sessions, for :func:`autoscaling.by_sessions`."""
        (worker,) = (await self._worker.health()).workers
        return {SESSIONS: worker.sessions}

    async def check_health(self) -> None:
        """Called by Serve from time to time; the first call starts what goes on beside the requests."""
        if not self._chores:
            if self._direct:
                await self._open_door()
            self._chores.append(asyncio.create_task(self._export()))
            if self._lease is not None:
                self._chores.append(asyncio.create_task(self._watch(self._lease)))

    async def _open_door(self) -> None:
        host = ray.util.get_node_ip_address()
        door = Door(self.health, self.batch)
        try:
            self._worker.address = await door.open(host)
        except OSError as error:
            _log.warning("%s: no port of its own on %s (%s); every request comes through Serve", self._app, host, error)
        else:
            self._door = door

    async def _export(self) -> None:
        exporter = MetricsExporter(self._app)
        while True:
            exporter.export(await self._worker.metrics())
            await asyncio.sleep(_EXPORT_PERIOD_S)

    async def _watch(self, lease: Lease) -> None:
        while True:
            await asyncio.sleep(_LEASE_PERIOD_S)
            try:
                over = await asyncio.to_thread(lease.is_over)
            except Exception:
                _log.warning("the cluster did not say whether the holder of %s lives", self._app, exc_info=True)
                continue
            if over:
                _log.warning("the holder of %s is dead: the application stops", self._app)
                await asyncio.to_thread(serve.delete, self._app, _blocking=False)
                return

    async def __del__(self) -> None:
        for chore in getattr(self, "_chores", ()):
            chore.cancel()
        door: Door | None = getattr(self, "_door", None)
        if door is not None:
            door.send_away()
        if hasattr(self, "_worker"):
            await self._worker.aclose()
        if door is not None:
            await door.close()
