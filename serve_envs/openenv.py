"""OpenEnv's dialect over an environment service: a session a WebSocket, or by ``episode_id`` over plain HTTP.

An action is ``{"message": TEXT}``. An observation has the environment's ``messages``, the same as one ``text``, the
admissible ``actions`` where they can be listed, and ``terminated``, ``truncated`` and ``success``. A reset takes
``seed``, ``split`` and ``index``; without an index the seed chooses the task. Requests over HTTP without an
``episode_id`` belong to one session that they all share, as in a server with one environment.
"""

from __future__ import annotations

import json
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rllib_agentic.envs import wire
from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.envs.faults import HTTP_STATUS, EnvFault, FaultCode
from serve_envs.single import EnvService, require

_SHARED = "shared"
_EpisodeId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,180}$")]


class _Action(BaseModel):
    """What the agent says."""

    model_config = ConfigDict(extra="forbid")
    message: str
    metadata: dict[str, Any] = Field(default_factory=dict)


class _Reset(BaseModel):
    """Which task."""

    model_config = ConfigDict(extra="ignore")
    seed: int | None = Field(default=None, ge=0)
    episode_id: _EpisodeId | None = None
    split: str | None = None
    index: int | None = None


class _Step(BaseModel):
    """One action over HTTP."""

    model_config = ConfigDict(extra="ignore")
    action: _Action
    timeout_s: float | None = Field(default=None, gt=0)
    request_id: str | None = Field(default=None, max_length=255)
    episode_id: _EpisodeId = _SHARED


class _Observation(BaseModel):
    """What the environment shows."""

    messages: list[dict[str, Any]]
    text: str
    actions: list[str] | None
    success: bool
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    metadata: dict[str, Any] = Field(default_factory=dict)


class _State(BaseModel):
    """Where an episode stands."""

    episode_id: str
    step_count: int
    split: str
    index: int
    seed: int
    over: bool
    total_reward: float


class _Shown(BaseModel):
    """The body of OpenEnv's answers to reset and step."""

    observation: _Observation
    reward: float | None
    done: bool


def openenv_router(service: EnvService) -> APIRouter:
    """The dialect's paths, to be mounted at ``/openenv``.

    Args:
        service: where the sessions are.
    """
    router = APIRouter()
    episodes = _Episodes(service)

    @router.get("/health")
    async def health() -> dict[str, str]:
        await service.health()
        return {"status": "healthy"}

    @router.get("/metadata")
    async def metadata() -> dict[str, str]:
        env = await episodes.schema()
        return {"name": env.name, "description": env.action_format, "version": env.version}

    @router.get("/schema")
    async def schema() -> dict[str, Any]:
        models: dict[str, type[BaseModel]] = {"action": _Action, "observation": _Observation, "state": _State}
        return {name: model.model_json_schema() for name, model in models.items()}

    @router.post("/reset", response_model=_Shown)
    async def reset(request: _Reset | None = None) -> Any:
        return await _or_status(episodes.reset(request or _Reset()))

    @router.post("/step", response_model=_Shown)
    async def step(request: _Step) -> Any:
        return await _or_status(episodes.step(request.episode_id, request.action, request.request_id))

    @router.get("/state", response_model=_State)
    async def state(request: Request, episode_id: _EpisodeId = _SHARED) -> Any:
        return await _or_status(episodes.state(episode_id))

    @router.websocket("/ws")
    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        episode_id = uuid4().hex
        try:
            while True:
                answer = await _hear(episodes, episode_id, await socket.receive_text())
                if answer is None:
                    break
                await socket.send_json(answer)
            await socket.close()
        except WebSocketDisconnect:
            return  # the client went away: nobody is left to tell
        finally:
            await episodes.close(episode_id)

    return router


class _Episodes:
    def __init__(self, service: EnvService) -> None:
        self._service = service
        self._schema: EnvSchema | None = None

    async def schema(self) -> EnvSchema:
        if self._schema is None:
            self._schema = (await self._service.schema()).env
        return self._schema

    async def reset(self, request: _Reset, episode_id: str | None = None) -> _Shown:
        env = await self.schema()
        split = request.split if request.split is not None else next(iter(env.splits))
        seed = request.seed or 0
        index = request.index if request.index is not None else seed % max(1, env.splits.get(split, 1))
        begin = wire.RestartRequest(
            session_id=_session_id(episode_id or request.episode_id or _SHARED),
            nonce=uuid4().hex,
            split=split,
            index=index,
            seed=seed,
        )
        created = await require(self._service, begin)
        assert isinstance(created, wire.CreateAnswer)
        return _Shown(observation=_observation(created.observation), reward=None, done=False)

    async def step(self, episode_id: str, action: _Action, request_id: str | None = None) -> _Shown:
        act = wire.ActRequest(
            session_id=_session_id(episode_id), nonce=request_id or uuid4().hex, action=action.message
        )
        stepped = await require(self._service, act)
        assert isinstance(stepped, wire.StepAnswer)
        result = stepped.result
        return _Shown(
            observation=_observation(result.observation, result),
            reward=result.reward,
            done=result.terminated or result.truncated,
        )

    async def state(self, episode_id: str) -> _State:
        stands = await require(self._service, wire.StateRequest(session_id=_session_id(episode_id)))
        assert isinstance(stands, wire.StateAnswer)
        return _State(
            episode_id=episode_id,
            step_count=stands.steps,
            split=stands.split,
            index=stands.index,
            seed=stands.seed,
            over=stands.over,
            total_reward=stands.total_reward,
        )

    async def close(self, episode_id: str) -> None:
        await self._service.batch(
            [wire.CloseRequest(session_id=_session_id(episode_id))], wire.Patience(wait_s=0.0, linger_s=0.0)
        )


async def _hear(episodes: _Episodes, episode_id: str, text: str) -> dict[str, Any] | None:
    """Answer one message of a WebSocket; None ends the talk."""
    try:
        message = json.loads(text)
    except json.JSONDecodeError as error:
        return _ws_error("INVALID_JSON", f"the message is not JSON: {error}")
    kind = message.get("type") if isinstance(message, dict) else None
    data = message.get("data") if isinstance(message, dict) else None
    try:
        if kind == "reset":
            shown = await episodes.reset(_Reset.model_validate(data or {}), episode_id)
            return {"type": "observation", "data": shown.model_dump()}
        if kind == "step":
            shown = await episodes.step(episode_id, _Action.model_validate(data))
            return {"type": "observation", "data": shown.model_dump()}
        if kind == "state":
            return {"type": "state", "data": (await episodes.state(episode_id)).model_dump()}
        if kind == "close":
            return None
    except ValidationError as error:
        faults = [{"loc": list(fault["loc"]), "msg": fault["msg"]} for fault in error.errors()]
        return _ws_error("VALIDATION_ERROR", f"{kind}: {faults}")
    except EnvFault as fault:
        code = "CAPACITY_REACHED" if fault.code is FaultCode.FULL else "EXECUTION_ERROR"
        return _ws_error(code, f"{fault.code.value}: {fault}")
    return _ws_error("UNKNOWN_TYPE", f"unknown message type {kind!r}; known: reset, step, state, close")


def _ws_error(code: str, message: str) -> dict[str, Any]:
    return {"type": "error", "data": {"code": code, "message": message}}


async def _or_status(work: Any) -> Any:
    try:
        return await work
    except EnvFault as fault:
        body = wire.ErrorAnswer.of(fault).model_dump(mode="json") | {"detail": str(fault)}
        return JSONResponse(body, status_code=HTTP_STATUS[fault.code])


def _observation(observation: Observation, result: StepResult | None = None) -> _Observation:
    return _Observation(
        messages=[message.to_template() for message in observation.messages],
        text="\n".join(message.content for message in observation.messages),
        actions=None if observation.actions is None else list(observation.actions),
        success=result is not None and result.success,
        terminated=result is not None and result.terminated,
        truncated=result is not None and result.truncated,
        info=dict(observation.info),
    )


def _session_id(episode_id: str) -> str:
    return f"openenv-{episode_id}"
