"""Sessions in this process: for tests, debugging, and cheap environments on one machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

from rllib_agentic.envs.env import Env, EnvSchema, Observation, StepResult
from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.hosting import EnvHost, HostedEnv
from rllib_agentic.envs.retries import WORTH_ANOTHER_SESSION, RetryPolicy
from rllib_agentic.envs.session import OpenedSession
from rllib_agentic.trajectory.trajectory import Task


class LocalClient:
    """An :class:`EnvClient` whose environment objects live in this process.

    Args:
        make: makes a new environment object at each call.
        call_timeout_s: longest time for one ``reset`` or ``step``.
        retries: how often a reset that fails is tried again.

    Raises:
        InputError: the environment refused its arguments.
    """

    def __init__(
        self, make: Callable[[], Env], call_timeout_s: float = 60.0, retries: RetryPolicy | None = None
    ) -> None:
        self._host = EnvHost(make, call_timeout_s)
        self._retries = retries or RetryPolicy()
        self._open: set[LocalSession] = set()
        self._closing: set[asyncio.Task[None]] = set()

    async def schema(self) -> EnvSchema:
        """What the environment is."""
        return self._host.schema

    async def create(self, task: Task) -> LocalSession:
        """Open a session for a task and reset it (see :class:`EnvClient`)."""
        failures = 0
        while True:
            try:
                self._host.check_task(task.split, task.index)
                return await self._create_once(task)
            except EnvFault as fault:
                if fault.code not in WORTH_ANOTHER_SESSION or failures == self._retries.max_retries:
                    raise fault.to_client_error(self.address) from fault
                failures += 1
                await self._retries.pause(failures)

    async def aclose(self) -> None:
        """Close open sessions."""
        for session in list(self._open):
            await session.close()
        await asyncio.gather(*self._closing)

    @property
    def address(self) -> str:
        """The environment, for messages."""
        return f"local:{self._host.schema.name}"

    def release(self, session: LocalSession, env: HostedEnv) -> asyncio.Task[None]:
        """Close a session's environment in the background; :meth:`aclose` waits for it."""
        self._open.discard(session)
        return self._close_soon(env)

    async def _create_once(self, task: Task) -> LocalSession:
        env = self._host.open()
        try:
            first = await env.reset(task.split, task.index, task.seed)
        except BaseException:
            self._close_soon(env)
            raise
        session = LocalSession(self, env, first)
        self._open.add(session)
        return session

    def _close_soon(self, env: HostedEnv) -> asyncio.Task[None]:
        task = asyncio.create_task(env.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task


class LocalSession(OpenedSession):
    """An :class:`EnvSession` in this process. Made by :meth:`LocalClient.create`."""

    def __init__(self, client: LocalClient, env: HostedEnv, first: Observation) -> None:
        super().__init__(uuid4().hex, first)
        self._client = client
        self._env = env
        self._over = self._closed = False

    async def step(self, action: str) -> StepResult:
        """Apply one action (see :class:`EnvSession`)."""
        try:
            if self._over and not self._closed:
                raise EnvFault(FaultCode.EPISODE_OVER, "the episode is over; create a new session")
            result = await self._env.step(action)
        except EnvFault as fault:
            if fault.code in WORTH_ANOTHER_SESSION:
                await self.close()
            raise fault.to_client_error(self._client.address) from fault
        self._over = result.terminated or result.truncated
        return result

    async def close(self) -> None:
        """End the session (see :class:`EnvSession`)."""
        if not self._closed:
            self._closed = True
            await asyncio.shield(self._client.release(self, self._env))
