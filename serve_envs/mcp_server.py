"""An environment as an MCP server: any MCP client can list its tasks, play them, and be graded."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server import Server
from pydantic import Field, ValidationError

from rllib_agentic.components import Settings
from rllib_agentic.envs import wire
from rllib_agentic.envs.env import Observation
from rllib_agentic.envs.faults import EnvFault
from serve_envs.single import EnvService, require


class CreateTask(Settings):
    """Begin a task; gives a session and the first observation."""

    split: str = Field(default="train", description="whose tasks; describe lists them")
    task: int = Field(default=0, ge=0, description="the task's index in its split")
    seed: int = Field(default=0, description="of the environment's chance")


class TakeStep(Settings):
    """Apply an action in a session; gives the observation, the reward, and whether the task is over."""

    session: str = Field(description="as create gave it")
    action: str = Field(description="in the environment's format; describe explains it")


class CloseSession(Settings):
    """End a session before its task is over."""

    session: str = Field(description="as create gave it")


class Describe(Settings):
    """Tell the splits with their number of tasks, the format of actions, and the most turns that make sense."""


_TOOLS: dict[str, type[Settings]] = {
    "describe": Describe,
    "create": CreateTask,
    "step": TakeStep,
    "close": CloseSession,
}


def make_mcp_server(service: EnvService, name: str) -> Server[Any]:
    """An MCP server with the tools ``describe``, ``create``, ``step`` and ``close``.

    Sessions are the service's: they have its slots and its time to live, and any number may be open at once. What the
    client does wrong is a tool's error, with the service's words.

    Args:
        service: where the sessions are; :class:`~serve_envs.worker.EnvWorker` is one in this process.
        name: of the environment.
    """

    async def list_tools(context: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=tool, description=model.__doc__, input_schema=model.model_json_schema())
                for tool, model in _TOOLS.items()
            ]
        )

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in _TOOLS:
            return _result(f"there is no tool {params.name!r}; there are {', '.join(_TOOLS)}", failed=True)
        try:
            request = _TOOLS[params.name].model_validate(params.arguments or {})
            return _result(*await _answer(service, request))
        except ValidationError as error:
            faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
            return _result("; ".join(faults), failed=True)
        except EnvFault as fault:
            return _result(str(fault), failed=True)

    return Server(name, on_list_tools=list_tools, on_call_tool=call_tool)


async def _answer(service: EnvService, request: Settings) -> tuple[str, dict[str, Any]]:
    match request:
        case CreateTask():
            session = uuid.uuid4().hex
            created = await require(
                service,
                wire.CreateRequest(session_id=session, split=request.split, index=request.task, seed=request.seed),
            )
            assert isinstance(created, wire.CreateAnswer)
            text = _text_of(created.observation)
            return f"session {session}\n{text}", {
                "session": session,
                "observation": text,
                **_actions(created.observation),
            }
        case TakeStep():
            return await _step(service, request)
        case CloseSession():
            closed = await require(service, wire.CloseRequest(session_id=request.session))
            assert isinstance(closed, wire.CloseAnswer)
            return "closed" if closed.was_open else "was closed already", {"was_open": closed.was_open}
        case _:
            schema = (await service.schema()).env
            about: dict[str, Any] = {
                "environment": schema.name,
                "splits": dict(schema.splits),
                "action_format": schema.action_format,
                "max_turns": schema.max_turns,
            }
            return "\n".join(f"{key}: {value}" for key, value in about.items()), about


async def _step(service: EnvService, request: TakeStep) -> tuple[str, dict[str, Any]]:
    state = await require(service, wire.StateRequest(session_id=request.session))
    assert isinstance(state, wire.StateAnswer)
    answer = await require(
        service, wire.StepRequest(session_id=request.session, step=state.steps + 1, action=request.action)
    )
    assert isinstance(answer, wire.StepAnswer)
    result = answer.result
    over = result.terminated or result.truncated
    text = _text_of(result.observation)
    if over:
        ending = "solved" if result.success else "cut short by a limit" if not result.terminated else "not solved"
        text += f"\nThe task is over: {ending}, with a reward of {result.reward:g} in this step."
        await require(service, wire.CloseRequest(session_id=request.session))
    return text, {
        "observation": _text_of(result.observation),
        "reward": result.reward,
        "terminated": result.terminated,
        "truncated": result.truncated,
        "success": result.success,
        **_actions(result.observation),
    }


def _text_of(observation: Observation) -> str:
    return "\n\n".join(message.content for message in observation.messages)


def _actions(observation: Observation) -> dict[str, Any]:
    return {} if observation.actions is None else {"actions": list(observation.actions)}


def _result(text: str, structured: Mapping[str, Any] | None = None, *, failed: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=None if structured is None else dict(structured),
        is_error=failed,
    )
