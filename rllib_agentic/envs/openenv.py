"""Environments on OpenEnv servers, by URL: ``env_config: {url: ..., dialect: {type: openenv, ...}}``."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from pydantic import Field
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.foreign import ForeignSettings, lost
from rllib_agentic.envs.http_connection import HttpConnection, bad_answer
from rllib_agentic.envs.retries import RetryPolicy
from rllib_agentic.envs.session import OpenedSession
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.trajectory import Task

_MAX_MESSAGE_BYTES = 64 * 2**20


class OpenEnvDialect(ForeignSettings):
    """How to talk to an OpenEnv server. A task's number is the seed that its reset is given.

    Attributes:
        action_field: the field of the action that takes the agent's text; found in the server's schema where it is left
            out and the action has one required text.
        action: further fields of every action.
        observation_field: the field of the observation that the agent is shown; where it is left out, the only text
            in the observation, or else the whole observation as JSON.
        actions_field: the field of the observation that lists the admissible actions.
        reset: further fields of every reset.
        success_reward: the reward of the last step from which an episode counts as solved, where the observation has
            no field ``success``.
    """

    action_field: str | None = None
    action: Mapping[str, Any] = Field(default_factory=dict)
    observation_field: str | None = None
    actions_field: str | None = None
    reset: Mapping[str, Any] = Field(default_factory=dict)
    success_reward: float = 1.0

    def client(self, url: str, env_name: str, retries: RetryPolicy) -> OpenEnvClient:
        """A client of the server at a URL, known as ``env_name``."""
        return OpenEnvClient(url, env_name, self, retries)


class OpenEnvClient:
    """An :class:`EnvClient` over OpenEnv's WebSocket: a session a connection.

    Opening and resetting are tried again; a step is not, since a repeat would be another step: the session is lost
    then, and :class:`ReplayingClient` rebuilds it.

    Args:
        url: base URL of the server, http or https.
        env_name: the name that this environment goes by here.
        settings: the dialect's.
        retries: how often to try again.

    Raises:
        InputError: this is no URL.
    """

    def __init__(self, url: str, env_name: str, settings: OpenEnvDialect, retries: RetryPolicy | None = None) -> None:
        self._connection = HttpConnection(url)
        self._name = env_name
        self._settings = settings
        self._retries = retries or RetryPolicy()
        self._action_field = settings.action_field
        self._open: set[OpenEnvSession] = set()

    @property
    def address(self) -> str:
        """The URL."""
        return self._connection.url

    async def schema(self) -> EnvSchema:
        """What is known of the environment; asks the server for its formats (see :class:`EnvClient`)."""
        try:
            await self._find_action_field()
        except EnvFault as fault:
            raise fault.to_client_error(self.address) from fault
        lists_actions = self._settings.actions_field is not None
        return self._settings.describe(self._name, "openenv", lists_actions=lists_actions)

    async def create(self, task: Task) -> OpenEnvSession:
        """Open a session for a task and reset it (see :class:`EnvClient`)."""
        attempt = 0
        while True:
            try:
                return await self._create_once(task)
            except EnvFault as fault:
                if fault.code is FaultCode.BAD_INPUT or attempt == self._retries.max_retries:
                    raise fault.to_client_error(self.address) from fault
                attempt += 1
                await self._retries.pause(attempt)

    async def aclose(self) -> None:
        """Close all sessions."""
        for session in list(self._open):
            await session.close()
        await self._connection.aclose()

    def forget(self, session: OpenEnvSession) -> None:
        """A session has ended."""
        self._open.discard(session)

    async def _create_once(self, task: Task) -> OpenEnvSession:
        number = self._settings.number_of(task.split, task.index)
        field = await self._find_action_field()
        url = f"ws{self.address.removeprefix('http')}/ws"
        try:
            socket = await connect(url, max_size=_MAX_MESSAGE_BYTES, open_timeout=10.0, proxy=None)
        except (OSError, TimeoutError, WebSocketException) as error:
            raise EnvFault(FaultCode.UNREACHABLE, f"{url}: {type(error).__name__} {error}") from error
        talk = _Talk(socket, self._settings.call_timeout_s)
        try:
            shown = await talk.ask("reset", {"seed": number, **self._settings.reset})
            text, actions, _ = _read_observation(self._settings, shown)
        except BaseException:
            await asyncio.shield(talk.end())
            raise
        first = Observation(self._settings.opening(text), actions)
        session = OpenEnvSession(self, talk, self._settings, field, first)
        self._open.add(session)
        return session

    async def _find_action_field(self) -> str:
        if self._action_field is None:
            response = await self._connection.send("GET", "/schema", None, self._settings.call_timeout_s)
            try:
                action = response.json()["action"]
                required = [
                    name for name in action.get("required", []) if action["properties"][name]["type"] == "string"
                ]
            except (ValueError, KeyError, TypeError, AttributeError):
                raise bad_answer(response, "OpenEnv's schema") from None
            if len(required) != 1:
                raise EnvFault(
                    FaultCode.BAD_INPUT,
                    f"an action has the required texts {required}; say which one the agent writes, as "
                    f"env_config.dialect.action_field",
                )
            self._action_field = required[0]
        return self._action_field


class OpenEnvSession(OpenedSession):
    """An :class:`EnvSession` on an OpenEnv server. Made by :meth:`OpenEnvClient.create`."""

    def __init__(
        self, client: OpenEnvClient, talk: _Talk, settings: OpenEnvDialect, action_field: str, first: Observation
    ) -> None:
        super().__init__(f"{client.address}#{uuid4().hex}", first)
        self._client = client
        self._talk = talk
        self._settings = settings
        self._action_field = action_field
        self._over = self._closed = False

    async def step(self, action: str) -> StepResult:
        """Send one action, once (see :class:`EnvSession`)."""
        try:
            if self._closed:
                raise EnvFault(FaultCode.SESSION_CLOSED, "the session is closed")
            if self._over:
                raise EnvFault(FaultCode.EPISODE_OVER, "the episode is over; create a new session")
            shown = await self._talk.ask("step", {self._action_field: action, **self._settings.action})
            text, actions, observation = _read_observation(self._settings, shown)
            reward, done = _read_outcome(shown)
        except EnvFault as fault:
            raise lost(fault).to_client_error(self._client.address) from fault
        self._over = done
        truncated = done and observation.get("truncated") is True and observation.get("terminated") is not True
        success = observation.get("success")
        return StepResult(
            Observation((Message("user", text),), actions),
            reward=reward,
            terminated=done and not truncated,
            truncated=truncated,
            success=success if isinstance(success, bool) else done and reward >= self._settings.success_reward,
        )

    async def close(self) -> None:
        """End the session (see :class:`EnvSession`)."""
        if not self._closed:
            self._closed = True
            self._client.forget(self)
            await asyncio.shield(self._talk.end())


class _Talk:
    """Questions and answers over one WebSocket, one after the other; broken for good once an answer stays out."""

    def __init__(self, socket: ClientConnection, timeout_s: float) -> None:
        self._socket = socket
        self._timeout_s = timeout_s
        self._waiting = False

    async def ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        if self._waiting:  # a question was abandoned: the next answer would be that one's
            raise EnvFault(FaultCode.SESSION_CLOSED, f"an earlier {kind} of this session was never answered")
        self._waiting = True
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._socket.send(json.dumps({"type": kind, "data": data}))
                text = await self._socket.recv()
        except (OSError, TimeoutError, WebSocketException) as error:
            raise EnvFault(FaultCode.UNREACHABLE, f"{kind}: {type(error).__name__} {error}".rstrip()) from error
        self._waiting = False
        try:
            answer = json.loads(text)
            answered, content = answer["type"], answer["data"]
        except (ValueError, KeyError, TypeError):
            raise EnvFault(FaultCode.BAD_ANSWER, f"{kind} was answered with {text!r:.200}") from None
        if answered == "error" and isinstance(content, dict):
            code = FaultCode.FULL if content.get("code") == "CAPACITY_REACHED" else FaultCode.ENV_FAILED
            raise EnvFault(code, f"{kind}: {content.get('code')}: {content.get('message')}")
        if answered != "observation" or not isinstance(content, dict):
            raise EnvFault(FaultCode.BAD_ANSWER, f"{kind} was answered with {text!r:.200}")
        return content

    async def end(self) -> None:
        try:
            async with asyncio.timeout(5.0):
                await self._socket.send(json.dumps({"type": "close"}))
                await self._socket.close()
        except (OSError, TimeoutError, WebSocketException):
            self._socket.transport.abort()


def _read_observation(
    settings: OpenEnvDialect, shown: Mapping[str, Any]
) -> tuple[str, tuple[str, ...] | None, Mapping[str, Any]]:
    observation = shown.get("observation")
    if not isinstance(observation, dict):
        raise EnvFault(FaultCode.BAD_ANSWER, f"expected an object 'observation', got {observation!r:.200}")
    field = settings.observation_field
    if field is not None and not isinstance(observation.get(field), str):
        raise EnvFault(
            FaultCode.BAD_ANSWER, f"the observation has no text {field!r}; it has {', '.join(observation) or 'nothing'}"
        )
    texts = [value for value in observation.values() if isinstance(value, str)]
    text = observation[field] if field is not None else texts[0] if len(texts) == 1 else json.dumps(observation)
    actions = None
    if settings.actions_field is not None:
        listed = observation.get(settings.actions_field)
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            raise EnvFault(FaultCode.BAD_ANSWER, f"{settings.actions_field!r} lists no texts: {listed!r:.200}")
        actions = tuple(dict.fromkeys(listed))
    return text, actions, observation


def _read_outcome(shown: Mapping[str, Any]) -> tuple[float, bool]:
    reward, done = shown.get("reward"), shown.get("done")
    if not isinstance(reward, int | float) or not math.isfinite(reward) or not isinstance(done, bool):
        raise EnvFault(FaultCode.BAD_ANSWER, f"expected a finite reward and done, got {reward!r:.80} and {done!r:.80}")
    return float(reward), done
