"""Recovery of lost sessions: the episode is rebuilt elsewhere from its task, its seed and the actions so far."""

from __future__ import annotations

import logging

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.envs.session import EnvClient, EnvSession
from rllib_agentic.errors import InfrastructureError
from rllib_agentic.trajectory.trajectory import Task

_log = logging.getLogger(__name__)


class ReplayingClient:
    """An :class:`EnvClient` whose sessions survive the loss of the replica that held them.

    Where the rebuilt session shows anything else than the lost one did, the step fails with ``session_lost``: the
    episode is invalid and may be drawn again.

    Args:
        client: makes the sessions.
        max_rebuilds: how often one session may be rebuilt.
    """

    def __init__(self, client: EnvClient, max_rebuilds: int = 2) -> None:
        self._client = client
        self._max_rebuilds = max_rebuilds

    async def schema(self) -> EnvSchema:
        """What the environment is."""
        return await self._client.schema()

    async def create(self, task: Task) -> ReplayingSession:
        """Open a session for a task (see :class:`EnvClient`)."""
        return ReplayingSession(self._client, task, await self._client.create(task), self._max_rebuilds)

    async def aclose(self) -> None:
        """Close whatever is open."""
        await self._client.aclose()


class ReplayingSession:
    """An :class:`EnvSession` that remembers its episode. Made by :meth:`ReplayingClient.create`."""

    def __init__(self, client: EnvClient, task: Task, session: EnvSession, max_rebuilds: int) -> None:
        self._client = client
        self._task = task
        self._session = session
        self._first = session.first
        self._rebuilds_left = max_rebuilds
        self._history: list[tuple[str, StepResult]] = []
        self._closed = False

    @property
    def session_id(self) -> str:
        """The id of the session that now carries the episode."""
        return self._session.session_id

    @property
    def first(self) -> Observation:
        """The observation of the reset."""
        return self._first

    async def step(self, action: str) -> StepResult:
        """Send one action, rebuilding the session first where it was lost (see :class:`EnvSession`)."""
        result = await self._recovering(action)
        self._history.append((action, result))
        return result

    async def close(self) -> None:
        """End the session (see :class:`EnvSession`)."""
        self._closed = True
        await self._session.close()

    async def _recovering(self, action: str) -> StepResult:
        lost = False
        while True:
            try:
                if lost:
                    await self._rebuild()
                return await self._session.step(action)
            except InfrastructureError as error:
                hopeless = self._closed or self._rebuilds_left == 0 or isinstance(error, _ReplayDiverged)
                if error.kind != "session_lost" or hopeless:
                    raise
                _log.warning("%s; rebuilding it from %d actions", error, len(self._history))
                self._rebuilds_left -= 1
                lost = True

    async def _rebuild(self) -> None:
        await self._session.close()
        self._session = await self._client.create(self._task)
        if _visible(self._session.first) != _visible(self._first):
            raise _ReplayDiverged(self._task, 0)
        for number, (action, before) in enumerate(self._history, start=1):
            now = await self._session.step(action)
            if _outcome(now) != _outcome(before):
                raise _ReplayDiverged(self._task, number)


class _ReplayDiverged(InfrastructureError):
    def __init__(self, task: Task, step: int) -> None:
        super().__init__(
            "session_lost",
            f"{task}: the session was lost, and its rebuild differs at step {step}: the environment is not "
            f"deterministic, so the episode cannot go on",
        )
        self._arguments = (task, step)

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return type(self), self._arguments


def _visible(observation: Observation) -> tuple[object, ...]:
    return observation.messages, observation.actions, observation.state_key


def _outcome(result: StepResult) -> tuple[object, ...]:
    return *_visible(result.observation), result.reward, result.terminated, result.truncated, result.success
