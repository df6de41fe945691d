"""AgentGym's HTTP dialect over an environment service, so that the clients of its repository drive our environments.

Paths, fields and shapes follow the environment's row in ``rllib_agentic/envs/agentgym_styles.py``. What goes wrong is
told with status 200 and ``{"error": ...}``, as those clients expect. Under ``/agentgym`` a task's number runs through
all splits, one after the other in the order of the schema; under ``/agentgym/SPLIT`` it counts within that split.

Nothing is kept here: a session's number names the session behind the gateway.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Body
from fastapi.responses import JSONResponse

from rllib_agentic.envs import wire
from rllib_agentic.envs.agentgym_styles import AgentGymStyle, agentgym_style
from rllib_agentic.envs.env import EnvSchema, Observation
from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.errors import InputError
from serve_envs.single import EnvService, require
from serve_envs.wordle.words import all_guesses

_Handler = Callable[..., Coroutine[Any, Any, Any]]
_CHECK_BITS = 12


def agentgym_router(service: EnvService, style: AgentGymStyle | None = None) -> APIRouter:
    """The dialect's paths, to be mounted at ``/agentgym`` and ``/agentgym/{split}``.

    Args:
        service: where the sessions are.
        style: the row to follow; None for that of the environment's name, or BabyAI's where AgentGym has none.
    """
    dialect = _Dialect(service, style)
    router = APIRouter()
    router.add_api_route("/", _hello, methods=["GET"])
    for path, handler, method in (
        ("/create", dialect.create, "POST"),
        ("/step", dialect.step, "POST"),
        ("/reset", dialect.reset, "POST"),
        ("/close", dialect.close, "POST"),
        ("/observation", dialect.observation, "GET"),
        ("/available_actions", dialect.available_actions, "GET"),
        ("/action_hint", dialect.available_actions, "GET"),
        ("/state", dialect.state, "GET"),
        ("/detail", dialect.detail, "GET"),
        ("/goal", dialect.goal, "GET"),
        ("/goals", dialect.goal, "GET"),
        ("/commands", dialect.commands, "GET"),
        ("/instruction_text", dialect.goal, "GET"),
        ("/filtered_vocab", dialect.vocabulary, "GET"),
    ):
        router.add_api_route(path, _errors_as_answers(handler), methods=[method], response_model=None)
    return router


class _Dialect:
    def __init__(self, service: EnvService, style: AgentGymStyle | None) -> None:
        self._service = service
        self._style = style
        self._schema: EnvSchema | None = None

    async def create(self, body: dict[str, Any] | None = Body(None), split: str | None = None) -> Any:  # noqa: B008
        style, schema = await self._know()
        number = _mint()
        answer: Any = number if style.create == "text" else {style.session: number}
        if style.begins:
            first = await self._begin(number, *self._place(schema, split, 0))
            answer |= self._after_reset(style, number, first)
        return answer

    async def reset(self, body: dict[str, Any], split: str | None = None) -> Any:
        style, schema = await self._know()
        number = _number(body, style.session)
        place = self._place(schema, split, _integer(body, style.task, default=0))
        created = await self._begin(number, *place, seed=_integer(body, "seed", 0) if style.task != "seed" else 0)
        if style.reset == "text":
            return _text(created.observation)
        if style.reset == "pair":
            return [_text(created.observation), None]
        return self._after_reset(style, number, created)

    async def step(self, body: dict[str, Any], split: str | None = None) -> Any:
        style, _ = await self._know()
        session_id = _session_id(_number(body, style.session))
        action = body.get("action")
        if not isinstance(action, str):
            raise EnvFault(FaultCode.BAD_INPUT, f"'action' must be a text, got {action!r}")
        if style.verb:
            action = action.strip().removeprefix(style.verb)
        stepped = await require(self._service, wire.ActRequest(session_id=session_id, nonce=uuid4().hex, action=action))
        assert isinstance(stepped, wire.StepAnswer)
        result = stepped.result
        answer: dict[str, Any] = {
            style.observation: _text(result.observation),
            "reward": result.reward,
            style.done: result.terminated if style.done == "terminated" else result.terminated or result.truncated,
        }
        if style.done == "terminated":
            answer["truncated"] = result.truncated
        if style.score_scale is not None:
            answer["score"] = stepped.total_reward * style.score_scale
        if style.info:
            answer["info"] = {"success": result.success, **result.metrics}
        if style.lists_actions:
            answer["available_actions"] = list(result.observation.actions or ())
        return answer

    async def close(self, body: dict[str, Any], split: str | None = None) -> Any:
        style, _ = await self._know()
        number = _number(body, style.session)
        closed = await require(self._service, wire.CloseRequest(session_id=_session_id(number)))
        assert isinstance(closed, wire.CloseAnswer)
        return {"closed": closed.was_open}

    async def observation(self, id: int | None = None, env_idx: int | None = None, split: str | None = None) -> Any:
        return _text((await self._stands(id, env_idx)).observation)

    async def available_actions(
        self, id: int | None = None, env_idx: int | None = None, split: str | None = None
    ) -> Any:
        style, _ = await self._know()
        actions = list((await self._stands(id, env_idx)).observation.actions or ())
        return {"has_search_bar": False, "clickables": actions} if style.task == "session_id" else actions

    async def state(self, id: int | None = None, env_idx: int | None = None, split: str | None = None) -> Any:
        state = await self._stands(id, env_idx)
        return {"url": "", "html": _text(state.observation), "instruction_text": _text(state.first)}

    async def detail(self, id: int | None = None, env_idx: int | None = None, split: str | None = None) -> Any:
        state = await self._stands(id, env_idx)
        return {
            "observation": _text(state.observation),
            "reward": state.total_reward,
            "done": state.over,
            "deleted": False,
            "steps": state.steps,
        }

    async def goal(self, id: int | None = None, env_idx: int | None = None, split: str | None = None) -> Any:
        first = (await self._stands(id, env_idx)).first
        return first.info.get("goal", _text(first))

    async def commands(self, id: int | None = None, env_idx: int | None = None, split: str | None = None) -> Any:
        return _text((await self._stands(id, env_idx)).first).partition("\n\nGoal:")[0]

    async def vocabulary(self, id: int | None = None, env_idx: int | None = None, split: str | None = None) -> Any:
        await self._stands(id, env_idx)
        return list(all_guesses())

    async def _know(self) -> tuple[AgentGymStyle, EnvSchema]:
        if self._schema is None:
            self._schema = (await self._service.schema()).env
        if self._style is None:
            try:
                self._style = agentgym_style(self._schema.name)
            except InputError:
                self._style = agentgym_style("babyai")
        return self._style, self._schema

    def _place(self, schema: EnvSchema, split: str | None, index: int) -> tuple[str, int]:
        if split is not None and split != schema.name:
            return split, index
        within = index
        for name, size in schema.splits.items():
            if 0 <= within < size:
                return name, within
            within -= size
        raise EnvFault(FaultCode.BAD_INPUT, f"tasks are numbered 0 to {sum(schema.splits.values()) - 1}, got {index}")

    async def _begin(self, number: int, split: str, index: int, seed: int = 0) -> wire.CreateAnswer:
        request = wire.RestartRequest(
            session_id=_session_id(number), nonce=uuid4().hex, split=split, index=index, seed=seed
        )
        created = await require(self._service, request)
        assert isinstance(created, wire.CreateAnswer)
        return created

    def _after_reset(self, style: AgentGymStyle, number: int, created: wire.CreateAnswer) -> dict[str, Any]:
        text = _text(created.observation)
        answer: dict[str, Any] = {style.session: number, style.observation: text, "reward": 0.0, style.done: False}
        if style.score_scale is not None:
            answer["score"] = 0.0
        if style.lists_actions:
            answer["available_actions"] = list(created.observation.actions or ())
            answer["task_type"] = created.observation.info.get("category", "")
        if style.describes_task:
            task = str(created.observation.info.get("task_description", ""))
            rest = text.removeprefix(task).lstrip()
            answer |= {"task_description": task, "observation": rest, "var_num": created.index}
            answer["task_name"] = created.observation.info.get("category", "")
        return answer

    async def _stands(self, session: int | None, env_idx: int | None) -> wire.StateAnswer:
        number = env_idx if session is None else session
        state = await require(self._service, wire.StateRequest(session_id=_session_id(number)))
        assert isinstance(state, wire.StateAnswer)
        return state


async def _hello() -> str:
    return "ok"


def _errors_as_answers(handler: _Handler) -> _Handler:
    @wraps(handler)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return await handler(*args, **kwargs)
        except EnvFault as fault:
            return JSONResponse({"error": str(fault), "code": fault.code.value})

    return guarded


def _mint() -> int:
    """A new session number, below 2**53 so that any JSON reader keeps it, with a check against made-up ones."""
    drawn = uuid4().int >> 88
    return drawn << _CHECK_BITS | _check_of(drawn)


def _check_of(drawn: int) -> int:
    return zlib.crc32(drawn.to_bytes(5)) & ((1 << _CHECK_BITS) - 1)


def _session_id(number: int | None) -> str:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 52:
        raise EnvFault(FaultCode.UNKNOWN_SESSION, f"the id {number!r} is not valid: /create gives one")
    if _check_of(number >> _CHECK_BITS) != number & ((1 << _CHECK_BITS) - 1):
        raise EnvFault(FaultCode.UNKNOWN_SESSION, f"the id {number} is not valid: /create gives one")
    return f"agentgym-{number}"


def _number(body: dict[str, Any], field: str) -> int:
    number = body.get(field)
    _session_id(number)
    return number  # type: ignore[return-value]


def _integer(body: dict[str, Any], field: str, default: int) -> int:
    value = body.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise EnvFault(FaultCode.BAD_INPUT, f"{field!r} must be a whole number, got {value!r}")
    return value


def _text(observation: Observation) -> str:
    """What the environment says, without its instructions: AgentGym's clients bring their own."""
    return "\n".join(message.content for message in observation.messages if message.role != "system")
