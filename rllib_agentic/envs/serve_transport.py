"""The way to an environment on Ray Serve within the cluster: deployment handles, no HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from rllib_agentic.envs.doors import Doors
from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.transport import answers_to
from rllib_agentic.envs.wire import (
    Answer,
    BatchAnswer,
    HealthAnswer,
    MetricsAnswer,
    Patience,
    Request,
    ResetAnswer,
    SchemaAnswer,
    routing_key,
)

M = TypeVar("M", bound=BaseModel)
WORKER_DEPLOYMENT = "EnvReplica"
_UNREACHABLE = (RayActorError, RayServeException, TimeoutError)
_HEALTH_TIMEOUT_S = 5.0
_CALL_TIMEOUT_S = 30.0


class ServeTransport:
    """Calls the workers of a Serve application, each by the routing key of its sessions.

    Batches go straight to a worker's own port once :meth:`health` has told of it, where it can be reached; all else
    goes through the deployment handle.

    Args:
        handle: of the worker deployment.
        address: for messages.
        direct: whether to use the workers' own ports.
    """

    def __init__(self, handle: DeploymentHandle, address: str, direct: bool = True) -> None:
        self._handle = handle
        self._address = address
        self._doors = Doors() if direct else None

    @classmethod
    def to_app(cls, app: str, direct: bool = True) -> ServeTransport:
        """The way to the workers of a deployed application."""
        return cls(serve.get_deployment_handle(WORKER_DEPLOYMENT, app), f"serve:{app}", direct)

    @property
    def address(self) -> str:
        """``serve:`` and the application's name."""
        return self._address

    def lane(self, session_id: str) -> str:
        """The routing key."""
        return routing_key(session_id)

    async def health(self) -> HealthAnswer:
        """See :class:`Transport`."""
        answers = await self._broadcast("health", HealthAnswer, _HEALTH_TIMEOUT_S)
        workers = [worker for answer in answers for worker in answer.workers]
        if self._doors is not None:
            self._doors.learn(workers)
        return HealthAnswer(env=answers[0].env, workers=workers)

    async def metrics(self) -> MetricsAnswer:
        """What the workers that answer at once did.

        Raises:
            EnvFault: ``unreachable``.
        """
        answers = await self._broadcast("metrics", MetricsAnswer, _HEALTH_TIMEOUT_S)
        return MetricsAnswer(env=answers[0].env, workers=[worker for answer in answers for worker in answer.workers])

    async def full_reset(self) -> ResetAnswer:
        """End all sessions of the service, whoever opened them, and free what they share.

        Raises:
            EnvFault: ``unreachable``.
        """
        answers = await self._broadcast("full_reset", ResetAnswer, _CALL_TIMEOUT_S)
        return ResetAnswer(sessions_closed=sum(answer.sessions_closed for answer in answers))

    async def schema(self) -> SchemaAnswer:
        """See :class:`Transport`."""
        return SchemaAnswer.model_validate_json(await self._reach(self._handle.schema.remote(), _CALL_TIMEOUT_S))

    async def batch(self, requests: Sequence[Request], patience: Patience) -> list[Answer]:
        """See :class:`Transport`. Requests of several routing keys go in one call each, all at once."""
        numbers: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            numbers.setdefault(routing_key(request.session_id), []).append(number)
        parts = await asyncio.gather(
            *(self._batch_of(key, [requests[n] for n in group], patience) for key, group in numbers.items())
        )
        answers: dict[int, Answer] = {}
        for group, part in zip(numbers.values(), parts, strict=True):
            answers.update(zip(group, part, strict=True))
        return [answers[number] for number in range(len(requests))]

    async def aclose(self) -> None:
        """Close the connections to the workers' own ports; handles belong to Serve."""
        if self._doors is not None:
            await self._doors.aclose()

    async def _broadcast(self, method: str, model: type[M], timeout_s: float) -> list[M]:
        calls = self._handle.broadcast(method).results_async(return_exceptions=True)
        bodies = await self._reach(calls, timeout_s)
        answers = [model.model_validate_json(body) for body in bodies if isinstance(body, bytes)]
        if not answers:
            raise EnvFault(FaultCode.UNREACHABLE, "no worker is running")
        return answers

    async def _batch_of(self, key: str, requests: list[Request], patience: Patience) -> list[Answer]:
        timeout_s = _CALL_TIMEOUT_S + patience.wait_s

        async def send(body: bytes) -> BatchAnswer:
            if self._doors is not None and (answer := await self._doors.batch(key, body, timeout_s)) is not None:
                return answer
            call = self._handle.options(session_id=key).batch.remote(body)
            return BatchAnswer.model_validate_json(await self._reach(call, timeout_s))

        return await answers_to(requests, patience, send)

    async def _reach(self, call: Awaitable[Any], timeout_s: float) -> Any:
        try:
            return await asyncio.wait_for(call, timeout_s)
        except _UNREACHABLE as error:
            text = f"{type(error).__name__} {error}".strip().partition("\n")[0]
            raise EnvFault(FaultCode.UNREACHABLE, f"a worker could not be reached: {text}") from error
