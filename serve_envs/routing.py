"""Which replica holds a session: the one whose id its session id begins with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from hashlib import blake2b

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

_RETRY_PAUSE_S = 0.05


class SessionRouter(RequestRouter):
    """Sends a request to the replica that its routing key names, and any other key by rendezvous hashing.

    A hash alone moves a share of the keys whenever a replica joins, live sessions included; a named replica never
    moves. Once it is dead, its keys hash to the others, which answer that they know no such session.

    The choice needs no queue lengths, so it bypasses the base class's queue of pending requests, whose tasks can
    abandon a request for good when many arrive at once (seen here; ray-project/ray#66325).
    """

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Rank the candidates for one request: the one that holds the session, and no other."""
        if pending_request is None or not candidate_replicas:
            return [candidate_replicas]
        return [[_holder(pending_request, candidate_replicas)]]

    async def _choose_replica_for_request(
        self, pending_request: PendingRequest, *, is_retry: bool = False
    ) -> RunningReplica:
        if is_retry:
            await asyncio.sleep(_RETRY_PAUSE_S)
        while not self._replicas:
            self._replicas_updated_event.clear()
            await self._replicas_updated_event.wait()
        return _holder(pending_request, self._replicas.values())


def _holder(request: PendingRequest, replicas: Iterable[RunningReplica]) -> RunningReplica:
    key = request.metadata.session_id or request.metadata.internal_request_id

    def rank(replica: RunningReplica) -> tuple[bool, bytes]:
        replica_id = replica.replica_id.unique_id
        return replica_id == key, blake2b(f"{key} {replica_id}".encode(), digest_size=8).digest()

    return max(replicas, key=rank)
