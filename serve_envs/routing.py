"""Which replica holds a session: the one whose id its session id begins with."""

from __future__ import annotations

from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter
from ray.serve.request_router import PendingRequest, RunningReplica


class SessionRouter(ConsistentHashRouter):
    """Sends a request to the replica that its routing key names, and any other key by consistent hashing.

    A hash ring alone moves a share of the keys whenever a replica joins, live sessions included; a named replica
    never moves. Once it is dead, its keys hash to the others, which answer that they know no such session.
    """

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Rank the candidates for one request (the interface of Serve's routers)."""
        key = pending_request.metadata.session_id if pending_request is not None else ""
        for replica in candidate_replicas:
            if key == replica.replica_id.unique_id:
                return [[replica]]
        return await super().choose_replicas(candidate_replicas, pending_request)
