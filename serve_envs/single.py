"""One request at a time through a service that answers in batches: what dialects are written on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rllib_agentic.envs import wire

_UNTIL_READY = wire.Patience(wait_s=60.0, linger_s=60.0)


class EnvService(Protocol):
    """What stands behind the gateway: one worker, or many."""

    async def health(self) -> wire.HealthAnswer:
        """The workers that answer at once."""
        ...

    async def metrics(self) -> wire.MetricsAnswer:
        """What the workers that answer at once did."""
        ...

    async def full_reset(self) -> wire.ResetAnswer:
        """End all sessions and free what they share."""
        ...

    async def schema(self) -> wire.SchemaAnswer:
        """The environment and the service's limits."""
        ...

    async def batch(self, requests: Sequence[wire.Request], patience: wire.Patience) -> list[wire.Answer]:
        """One answer a request, in their order."""
        ...


async def ask(service: EnvService, request: wire.Request) -> wire.Answer:
    """Send one request and wait until it is answered; a failure is an answer too."""
    answer: wire.Answer = wire.PendingAnswer(session_id=request.session_id)
    while isinstance(answer, wire.PendingAnswer):
        (answer,) = await service.batch([request], _UNTIL_READY)
    return answer


async def require(service: EnvService, request: wire.Request) -> wire.Answer:
    """Like :func:`ask`, for callers who have a way of their own with failures.

    Raises:
        EnvFault: the request failed.
    """
    answer = await ask(service, request)
    if isinstance(answer, wire.ErrorAnswer):
        raise answer.to_fault()
    return answer
