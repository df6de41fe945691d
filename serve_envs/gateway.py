"""The HTTP face of an environment service: JSON in, typed JSON out, no state of its own."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rllib_agentic.envs import wire
from rllib_agentic.envs.agentgym_styles import AgentGymStyle
from rllib_agentic.envs.faults import HTTP_STATUS, EnvFault, FaultCode
from serve_envs.agentgym import agentgym_router
from serve_envs.openenv import openenv_router
from serve_envs.single import EnvService, ask

_FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": wire.ErrorAnswer} for status in sorted(set(HTTP_STATUS.values()))
}


def make_http_app(service: EnvService, style: AgentGymStyle | None = None) -> FastAPI:
    """The protocol over HTTP. Every failure has the body of :class:`wire.ErrorAnswer` and a fitting status.

    Two dialects stand beside it: AgentGym's under ``/agentgym``, OpenEnv's under ``/openenv``.

    Args:
        service: where the sessions are.
        style: AgentGym's row; None for that of the environment's name.
    """
    app = FastAPI(title="Environment service", version=str(wire.PROTOCOL_VERSION))
    app.add_middleware(_BodyLimit, max_bytes=wire.MAX_BODY_BYTES)
    app.add_exception_handler(RequestValidationError, _refuse_body)
    app.add_exception_handler(HTTPException, _refuse_request)
    app.add_exception_handler(EnvFault, _tell_fault)

    async def single(request: wire.Request) -> Any:
        answer = await ask(service, request)
        return _error(answer.to_fault()) if isinstance(answer, wire.ErrorAnswer) else answer

    @app.get("/v1/health")
    async def health() -> wire.HealthAnswer:
        return await service.health()

    @app.get("/v1/metrics", responses=_FAILURES)
    async def metrics() -> wire.MetricsAnswer:
        return await service.metrics()

    @app.post("/v1/full_reset", responses=_FAILURES)
    async def full_reset() -> wire.ResetAnswer:
        return await service.full_reset()

    @app.get("/v1/schema")
    async def schema() -> wire.SchemaAnswer:
        return await service.schema()

    @app.post("/v1/create", responses=_FAILURES, response_model=wire.CreateAnswer)
    async def create(request: wire.CreateRequest) -> Any:
        return await single(request)

    @app.post("/v1/step", responses=_FAILURES, response_model=wire.StepAnswer)
    async def step(request: wire.StepRequest) -> Any:
        return await single(request)

    @app.post("/v1/state", responses=_FAILURES, response_model=wire.StateAnswer)
    async def state(request: wire.StateRequest) -> Any:
        return await single(request)

    @app.post("/v1/close", responses=_FAILURES, response_model=wire.CloseAnswer)
    async def close(request: wire.CloseRequest) -> Any:
        return await single(request)

    @app.post("/v1/batch", responses=_FAILURES, response_model=wire.BatchAnswer)
    async def batch(request: wire.BatchRequest) -> Response:
        answers = await service.batch(request.requests, request.patience)
        return Response(wire.BatchAnswer(answers=answers).model_dump_json(), media_type="application/json")

    agentgym = agentgym_router(service, style)
    app.include_router(agentgym, prefix="/agentgym", tags=["AgentGym"])
    app.include_router(agentgym, prefix="/agentgym/{split}", tags=["AgentGym"])
    app.include_router(openenv_router(service), prefix="/openenv", tags=["OpenEnv"])
    return app


def _error(fault: EnvFault) -> JSONResponse:
    headers = {} if fault.retry_after_s is None else {"Retry-After": f"{max(1, round(fault.retry_after_s))}"}
    body = wire.ErrorAnswer.of(fault).model_dump(mode="json")
    return JSONResponse(body, status_code=HTTP_STATUS[fault.code], headers=headers)


async def _tell_fault(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, EnvFault)
    return _error(error)


async def _refuse_body(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    faults = error.errors()
    if any(fault["type"] == "json_invalid" for fault in faults):
        return _error(EnvFault(FaultCode.BAD_JSON, "the body is not JSON in UTF-8"))
    lines = [f"{'.'.join(str(part) for part in fault['loc'][1:]) or 'body'}: {fault['msg']}" for fault in faults]
    return _error(EnvFault(FaultCode.BAD_INPUT, f"{request.url.path}: {'; '.join(lines)}"))


async def _refuse_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        return _error(EnvFault(FaultCode.BAD_JSON, "the body is not JSON in UTF-8"))
    fault = EnvFault(FaultCode.NOT_FOUND, f"{request.method} {request.url.path}: {error.detail}; see /docs")
    return JSONResponse(wire.ErrorAnswer.of(fault).model_dump(mode="json"), status_code=error.status_code)


class _BodyLimit:
    """Refuses bodies over a size, told or not by their header, before anything reads them whole."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        chunks: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            chunk = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(chunk)
            if size <= self._max_bytes:
                chunks.append(chunk)
        if size > self._max_bytes:
            text = f"the body has {size} bytes; the most is {self._max_bytes}"
            await _error(EnvFault(FaultCode.TOO_LARGE, text))(scope, receive, send)
            return
        pending: list[Message] = [{"type": "http.request", "body": b"".join(chunks), "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        await self._app(scope, replay, send)
