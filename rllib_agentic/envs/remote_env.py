"""A service at a URL as one environment object: for the checker, and for playing by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rllib_agentic.envs.client import make_client
from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.session import EnvClient, EnvSession
from rllib_agentic.trajectory.trajectory import Task


class RemoteEnv:
    """An :class:`Env` whose episodes run on a service. Not usable where an asyncio loop runs already.

    Args:
        url: base URL of a service that speaks our protocol.

    Raises:
        InputError: this is no URL.
    """

    def __init__(self, url: str) -> None:
        self._connect: Callable[[], EnvClient] = lambda: make_client("env", {"url": url, "max_rebuilds": 0})
        self._connect()
        self._runner: asyncio.Runner | None = None
        self._client: EnvClient | None = None
        self._session: EnvSession | None = None
        self._schema: EnvSchema | None = None

    def schema(self) -> EnvSchema:
        """Ask the service.

        Raises:
            InfrastructureError: it does not answer.
        """
        if self._schema is None:
            self._schema = self._run(lambda client: client.schema())
        return self._schema

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Open a session for the task, after closing the one before."""
        self._end_session()
        self._session = self._run(lambda client: client.create(Task("env", split, index, seed)))
        assert self._session is not None
        return self._session.first

    def step(self, action: str) -> StepResult:
        """Send the action.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
        """
        session = self._session
        if session is None:
            raise RuntimeError("no episode is running; call reset")
        try:
            return self._run(lambda client: session.step(action))
        except EnvFault as fault:
            if fault.code is FaultCode.EPISODE_OVER:
                raise RuntimeError("the episode has ended; call reset") from fault
            raise

    def close(self) -> None:
        """Close the session and the connections; a reset opens them again."""
        self._end_session()
        runner, client = self._runner, self._client
        self._runner = self._client = None
        if runner is not None:
            if client is not None:
                runner.run(client.aclose())
            runner.close()

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._run(lambda client: session.close())

    def _run(self, work: Callable[[EnvClient], Any]) -> Any:
        if self._runner is None or self._client is None:
            self._runner = asyncio.Runner()
            self._client = self._connect()
        return self._runner.run(_awaited(work, self._client))


async def _awaited(work: Callable[[EnvClient], Any], client: EnvClient) -> Any:
    return await work(client)
