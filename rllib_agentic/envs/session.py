"""Sessions as the rollout sees them, whatever hosts the environment."""

from __future__ import annotations

from typing import Protocol

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.trajectory.trajectory import Task


class EnvSession(Protocol):
    """One episode on some backend. Made by :meth:`EnvClient.create`."""

    @property
    def session_id(self) -> str:
        """The id that the client made."""
        ...

    @property
    def first(self) -> Observation:
        """The observation of the reset."""
        ...

    async def step(self, action: str) -> StepResult:
        """Send one action; a retried request is answered once.

        Raises:
            InfrastructureError: kinds ``session_lost``, ``env_unreachable``, ``env_timeout``, ``env_error``.
        """
        ...

    async def close(self) -> None:
        """End the session, whatever its state. Never raises for a session that is gone."""
        ...


class OpenedSession:
    """What every backend's session knows from its beginning.

    Args:
        session_id: its id.
        first: the observation of its reset.
    """

    def __init__(self, session_id: str, first: Observation) -> None:
        self._session_id = session_id
        self._first = first

    @property
    def session_id(self) -> str:
        """The id that the client made."""
        return self._session_id

    @property
    def first(self) -> Observation:
        """The observation of the reset."""
        return self._first


class EnvClient(Protocol):
    """One environment on one backend (``serve``, ``url``, ``local``). Usable from one asyncio loop at a time."""

    async def schema(self) -> EnvSchema:
        """Ask the environment what it is.

        Raises:
            InfrastructureError: ``env_unreachable``, with the address in the message.
        """
        ...

    async def create(self, task: Task) -> EnvSession:
        """Open a session for a task and reset it.

        Raises:
            InputError: no such split, or the index is out of range (the message gives the valid range).
            InfrastructureError: ``env_unreachable``, ``env_full``, ``env_error``.
        """
        ...

    async def aclose(self) -> None:
        """Close connections and whatever sessions are still open."""
        ...
