"""Environments on AgentGym's own servers, by URL: ``env_config: {url: ..., dialect: {type: agentgym, ...}}``."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Annotated, Any

import httpx
from pydantic import Field, TypeAdapter, ValidationError

from rllib_agentic.envs.agentgym_styles import AgentGymStyle, agentgym_style
from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.foreign import ForeignSettings, lost
from rllib_agentic.envs.http_connection import HttpConnection, bad_answer
from rllib_agentic.envs.retries import RetryPolicy
from rllib_agentic.envs.session import OpenedSession
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.trajectory import Task

_GONE = re.compile(r"\bid \S+ is not valid|has been deleted")  # how AgentGym's servers say it
_log = logging.getLogger(__name__)
_Reward = Annotated[float, Field(allow_inf_nan=False, strict=True)]
_number, _text = TypeAdapter(_Reward), TypeAdapter(Annotated[str, Field(strict=True)])
_flag, _texts = TypeAdapter(Annotated[bool, Field(strict=True)]), TypeAdapter(list[str])


class AgentGymDialect(ForeignSettings):
    """How to talk to one of AgentGym's servers.

    Attributes:
        style: AgentGym's name of the environment; the name in ``env`` where it is left out.
    """

    style: str | None = None

    def client(self, url: str, env_name: str, retries: RetryPolicy) -> AgentGymClient:
        """A client of the server at a URL, known as ``env_name``."""
        return AgentGymClient(url, env_name, self, retries)


class AgentGymClient:
    """An :class:`EnvClient` over AgentGym's HTTP dialect.

    Creating and resetting are tried again; a step is not, since a repeat would be another step: the session is lost
    then, and :class:`ReplayingClient` rebuilds it. Closed sessions are reused: not every server can close one.

    Args:
        url: base URL of the server.
        env_name: the name that this environment goes by here.
        settings: the dialect's.
        retries: how often to try again.
        transport: another way to carry HTTP.

    Raises:
        InputError: this is no URL, or AgentGym has no such environment.
    """

    def __init__(
        self,
        url: str,
        env_name: str,
        settings: AgentGymDialect,
        retries: RetryPolicy | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._style = agentgym_style(settings.style or env_name)
        self._connection = HttpConnection(url, transport=transport)
        self._name = env_name
        self._settings = settings
        self._retries = retries or RetryPolicy()
        self._free: list[int] = []
        self._open: set[AgentGymSession] = set()

    @property
    def address(self) -> str:
        """The URL."""
        return self._connection.url

    @property
    def style(self) -> AgentGymStyle:
        """The row that this server follows."""
        return self._style

    async def schema(self) -> EnvSchema:
        """What is known of the environment; asks the server whether it is there (see :class:`EnvClient`)."""
        try:
            await self._connection.send("GET", "/", None, self._settings.call_timeout_s)
        except EnvFault as fault:
            raise fault.to_client_error(self.address) from fault
        return self._settings.describe(self._name, "agentgym", lists_actions=self._style.lists_actions)

    async def create(self, task: Task) -> AgentGymSession:
        """Open a session for a task and reset it (see :class:`EnvClient`)."""
        attempt = 0
        while True:
            try:
                session = await self._create_once(task)
            except EnvFault as fault:
                if fault.code is FaultCode.BAD_INPUT or attempt == self._retries.max_retries:
                    raise fault.to_client_error(self.address) from fault
                attempt += 1
                await self._retries.pause(attempt)
            else:
                self._open.add(session)
                return session

    async def aclose(self) -> None:
        """Close all sessions, where the server can, and the connections."""
        for session in list(self._open):
            await session.close()
        if self._style.closes:
            await asyncio.gather(*(self._close(number) for number in self._free))
        self._free.clear()
        await self._connection.aclose()

    async def call(self, path: str, body: dict[str, Any] | None) -> Any:
        """POST, and give the answer.

        Raises:
            EnvFault: ``unreachable``, ``bad_answer``, and for an answer of ``{"error": ...}`` ``session_closed`` where
                the server says that it has no such session, else ``env_failed``.
        """
        sent = None if body is None else json.dumps(body).encode()
        response = await self._connection.send("POST", path, sent, self._settings.call_timeout_s)
        try:
            answer = response.json() if response.status_code == httpx.codes.OK else None
        except ValueError:
            answer = None
        if answer is None:
            raise bad_answer(response, "AgentGym's")
        if isinstance(answer, dict) and "error" in answer:
            gone = answer.get("code") == FaultCode.SESSION_CLOSED or _GONE.search(str(answer["error"]))
            code = FaultCode.SESSION_CLOSED if gone else FaultCode.ENV_FAILED
            raise EnvFault(code, f"{path}: {answer['error']}")
        return answer

    async def give_back(self, session: AgentGymSession, number: int, *, usable: bool) -> None:
        """A session has ended: keep its number for another, or close it on the server."""
        self._open.discard(session)
        if usable:
            self._free.append(number)
        elif self._style.closes:
            await self._close(number)

    async def _create_once(self, task: Task) -> AgentGymSession:
        style, settings = self._style, self._settings
        wanted = settings.number_of(task.split, task.index)
        if self._free:
            number = self._free.pop()
        else:
            body = None if style.create_body is None else dict(style.create_body)
            created = await self.call("/create", body)
            number = created if style.create == "text" else _member(created, style.session)
            if isinstance(number, bool) or not isinstance(number, int):
                raise EnvFault(FaultCode.BAD_ANSWER, f"/create answered {created!r:.200}; expected a session's number")
        body = {style.session: number, style.task: wanted, **style.reset_extra}
        try:
            answer = await self.call("/reset", body)
            text, actions = self._first(answer)
        except (EnvFault, asyncio.CancelledError):
            if style.closes:
                await asyncio.shield(self._close(number))
            raise
        return AgentGymSession(self, number, Observation(settings.opening(text), actions))

    def _first(self, answer: Any) -> tuple[str, tuple[str, ...] | None]:
        style = self._style
        if style.reset == "text":
            return _checked(_text, answer, "/reset"), None
        if style.reset == "pair":
            return _checked(_text, answer[0] if isinstance(answer, list) and answer else None, "/reset"), None
        text = _checked(_text, _member(answer, style.observation), "/reset")
        if style.describes_task:
            task = _checked(_text, _member(answer, "task_description"), "/reset")
            text = "\n".join(part for part in (task, text) if part)
        return text, listed_actions(style, answer)

    async def _close(self, number: int) -> None:
        try:
            await self.call("/close", {self._style.session: number})
        except EnvFault as fault:
            _log.warning("environment %s: session %s could not be closed: %s", self.address, number, fault)


class AgentGymSession(OpenedSession):
    """An :class:`EnvSession` on one of AgentGym's servers. Made by :meth:`AgentGymClient.create`."""

    def __init__(self, client: AgentGymClient, number: int, first: Observation) -> None:
        super().__init__(f"{client.address}#{number}", first)
        self._client = client
        self._number = number
        self._score = 0.0
        self._over = self._closed = False
        self._usable = True

    async def step(self, action: str) -> StepResult:
        """Send one action, once (see :class:`EnvSession`)."""
        try:
            if self._closed or not self._usable:
                raise EnvFault(FaultCode.SESSION_CLOSED, f"session {self._number} is closed")
            if self._over:
                raise EnvFault(FaultCode.EPISODE_OVER, "the episode is over; create a new session")
            self._usable = False  # until its answer is here: a cancelled step may still happen
            style = self._client.style
            answer = await self._client.call("/step", {style.session: self._number, "action": action})
            result = self._read(style, answer)
            self._usable = True
        except EnvFault as fault:
            raise lost(fault).to_client_error(self._client.address) from fault
        self._over = result.terminated or result.truncated
        return result

    async def close(self) -> None:
        """End the session (see :class:`EnvSession`)."""
        if not self._closed:
            self._closed = True
            await asyncio.shield(self._client.give_back(self, self._number, usable=self._usable))

    def _read(self, style: AgentGymStyle, answer: Any) -> StepResult:
        text = _checked(_text, _member(answer, style.observation), "/step")
        reached = reward = _checked(_number, _member(answer, "reward"), "/step")
        terminated = _checked(_flag, _member(answer, style.done), "/step")
        truncated = style.done == "terminated" and _checked(_flag, _member(answer, "truncated"), "/step")
        if style.score_scale is not None:
            reached = _checked(_number, _member(answer, "score"), "/step")
            reward, self._score = (reached - self._score) / style.score_scale, reached
        return StepResult(
            Observation((Message("user", text),), listed_actions(style, answer)),
            reward=reward,
            terminated=terminated,
            truncated=truncated and not terminated,
            success=terminated and reached >= style.success_reward,
        )


def listed_actions(style: AgentGymStyle, answer: Any) -> tuple[str, ...] | None:
    """The admissible actions in an answer, where its server lists them."""
    if not style.lists_actions or "available_actions" not in answer:
        return None
    return tuple(dict.fromkeys(_checked(_texts, answer["available_actions"], "available_actions")))


def _member(answer: Any, field: str) -> Any:
    if not isinstance(answer, dict) or field not in answer:
        raise EnvFault(FaultCode.BAD_ANSWER, f"expected an object with {field!r}, got {answer!r:.200}")
    return answer[field]


def _checked(kind: TypeAdapter[Any], value: Any, where: str) -> Any:
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        raise EnvFault(FaultCode.BAD_ANSWER, f"{where}: {error.errors()[0]['msg']}, got {value!r:.200}") from None
