"""The HTTP face of an engine: turns in token ids, weights, and OpenAI's completions for other clients."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
import safetensors.numpy
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field, TypeAdapter
from ray import serve
from ray.serve.handle import DeploymentHandle

from rllib_agentic.engines.remote import RemoteEngine, WatchedTurns
from rllib_agentic.engines.token_wire import TurnAnswer, TurnError, TurnPiece, TurnRequest, WatchedAnswer
from rllib_agentic.engines.vllm_transport import HandleTurns
from rllib_agentic.errors import InfrastructureError, InputError, StaleWeightsError
from rllib_agentic.rl_module.model_loading import load_stop_ids, load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings
from rllib_agentic.trajectory.turn import FinishReason
from serve_envs.inference_stream import TextFlow, event, merged
from serve_envs.weight_store import Published, find_store

_WATCHED: TypeAdapter[TurnPiece | TurnAnswer | TurnError] = TypeAdapter(WatchedAnswer)
_STATUS = {"input": 422, "stale_weights": 409, "infrastructure": 503}


class StreamOptions(BaseModel):
    """``include_usage``: the last event but ``[DONE]`` counts the tokens."""

    include_usage: bool = False


class Sampling(BaseModel):
    """What OpenAI's two forms of a completion share; what is not known here is passed over, as their clients expect."""

    model: str = ""
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    n: int = Field(default=1, ge=1, le=128)
    seed: int | None = None
    stop: str | list[str] | None = None
    logprobs: bool | int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None


class CompletionCall(Sampling):
    """``POST /v1/completions``."""

    prompt: str | list[int]


class ChatCall(Sampling):
    """``POST /v1/chat/completions``."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None


class AbortCall(BaseModel):
    """``POST /v1/abort``."""

    episode_ids: list[str] | None = None


@serve.ingress()
class InferenceGateway:
    """The HTTP face of the application.

    Args:
        replicas: handle of the replicas.
        model: which model they have.
        app: the application's name.
    """

    def __init__(self, replicas: DeploymentHandle, model: ModelSettings, app: str) -> None:
        self._face = GatewayFace(model, app, replicas, HandleTurns(app))

    def __serve_build_asgi_app__(self) -> FastAPI:
        return make_inference_http(self._face)


class GatewayFace:
    """What the routes do.

    Args:
        model: which model the replicas have.
        app: the application's name.
        replicas: handle of the replicas.
        turns: the way there for turns.
    """

    def __init__(self, model: ModelSettings, app: str, replicas: DeploymentHandle, turns: WatchedTurns) -> None:
        self.name = model.name
        self._app = app
        self._replicas = replicas
        self._turns = turns
        self._engine = RemoteEngine(turns)
        self._tokenizer = load_tokenizer(model)
        self._stop_ids = frozenset(load_stop_ids(model))

    async def turn(self, body: bytes, episode_id: str | None) -> Response:
        """``POST /v1/turn``: a :class:`TurnRequest` in, a :class:`TurnAnswer` or :class:`TurnError` out."""
        try:
            answer = await self._turns.turn(body, episode_id)
        except ConnectionError as error:
            lost = InfrastructureError("engine_unreachable", str(error))
            return Response(TurnError.of(lost).model_dump_json(), 503, media_type="application/json")
        status = 200
        if answer.startswith(b'{"kind":"error"'):
            status = _STATUS[TurnError.model_validate_json(answer).error]
        return Response(answer, status, media_type="application/json")

    async def abort(self, call: AbortCall) -> None:
        """``POST /v1/abort``: end running turns."""
        await self._turns.abort(call.episode_ids)

    async def status(self) -> dict[str, Any]:
        """``GET /v1/status``: the replicas, each with its version."""
        found = await self._replicas.broadcast("status").results_async(return_exceptions=True)
        return {"model": self.name, "replicas": [one for one in found if isinstance(one, dict)]}

    async def publish(self, version: int, body: bytes, finish_turns: bool) -> dict[str, Any]:
        """``PUT /v1/weights/VERSION``: a safetensors file with the whole model; answers when replicas have loaded it.

        Raises:
            InputError: it is no such file, or does not fit the model.
        """
        try:
            tensors = await asyncio.to_thread(safetensors.numpy.load, body)
        except Exception as error:
            raise InputError(f"weights: expected a safetensors file: {error}") from error
        weights = {f"model.{name}": array for name, array in tensors.items()}
        newest = Published.of(version, weights, finish_turns=finish_turns)
        await find_store(self._app).publish.remote(newest)
        found = await self._replicas.broadcast("update").results_async(return_exceptions=True)
        wrong = [one for one in found if isinstance(one, Exception)]
        if wrong:
            raise InputError(f"weights: {len(wrong)} of {len(found)} replicas did not load them: {wrong[0]}")
        return {"weight_version": version, "replicas": len(found)}

    async def complete(self, call: Sampling, prompt_ids: list[int]) -> list[tuple[str, TurnAnswer]]:
        """The text and the turn of each of ``n`` completions."""
        requests = [request.unpack() for request in self._requests(call, prompt_ids)]
        answers = await asyncio.gather(*map(self._engine.generate, requests))
        return [
            (self._text(answer.ids, request.stop_strings), TurnAnswer.of(request, answer))
            for request, answer in zip(requests, answers, strict=True)
        ]

    def watch(self, call: Sampling, prompt_ids: list[int]) -> AsyncGenerator[tuple[int, tuple[str, TurnAnswer | None]]]:
        """Of each of ``n`` completions its number, its text piece by piece, and with the last piece its turn.

        Raises:
            InputError, InfrastructureError: as for a turn; a replica that dies while it samples is not replaced here.
        """
        return merged([self._flow(request) for request in self._requests(call, prompt_ids)])

    async def _flow(self, request: TurnRequest) -> AsyncIterator[tuple[str, TurnAnswer | None]]:
        text = TextFlow(lambda ids: self._tokenizer.decode(ids, skip_special_tokens=True), request.stop)
        try:
            async for line in self._turns.watch(request.model_dump_json().encode()):
                found = _WATCHED.validate_json(line)
                if isinstance(found, TurnError):
                    raise found.unpack()
                if isinstance(found, TurnPiece):
                    if piece := text.push(found.token_ids):
                        yield piece, None
                else:
                    yield text.end(self._text(found.token_ids, request.stop)), found
        except ConnectionError as error:
            raise InfrastructureError("engine_unreachable", str(error)) from error

    def _requests(self, call: Sampling, prompt_ids: list[int]) -> list[TurnRequest]:
        seed = uuid.uuid4().int >> 66 if call.seed is None else call.seed
        return [
            TurnRequest(
                prompt_token_ids=prompt_ids,
                max_tokens=call.max_tokens or call.max_completion_tokens or 16,
                temperature=call.temperature,
                seed=seed + number,
                top_p=call.top_p,
                stop_token_ids=sorted(self._stop_ids),
                stop=[call.stop] if isinstance(call.stop, str) else call.stop or [],
            )
            for number in range(call.n)
        ]

    def encode(self, call: CompletionCall | ChatCall) -> list[int]:
        """The prompt as ids.

        Raises:
            InputError: the model has no chat template, or it refuses these messages.
        """
        if isinstance(call, CompletionCall):
            is_text = isinstance(call.prompt, str)
            return self._tokenizer.encode(call.prompt) if is_text else list(call.prompt)  # type: ignore[arg-type]
        try:
            ids = self._tokenizer.apply_chat_template(
                call.messages, tools=call.tools, add_generation_prompt=True, tokenize=True, return_dict=False
            )
        except Exception as error:
            raise InputError(f"messages: the chat template does not take them: {error}") from error
        return [int(i) for i in ids]  # type: ignore[union-attr]

    def _text(self, ids: Sequence[int] | np.ndarray, stop: Sequence[str]) -> str:
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        cut = [text.find(s) for s in stop if s in text]
        return text[: min(cut, default=len(text))]


def make_inference_http(face: GatewayFace) -> FastAPI:
    """The routes over what they do."""
    app = FastAPI(title="rllib_agentic engine", description=__doc__)

    @app.exception_handler(InputError)
    async def bad(request: Request, error: InputError) -> JSONResponse:
        return JSONResponse({"error": {"message": str(error), "type": "invalid_request_error"}}, 422)

    @app.exception_handler(InfrastructureError)
    async def failed(request: Request, error: InfrastructureError) -> JSONResponse:
        status = 409 if isinstance(error, StaleWeightsError) else 503
        return JSONResponse({"error": {"message": str(error), "type": error.kind}}, status)

    @app.post("/v1/turn", response_model=TurnAnswer)
    async def turn(request: Request) -> Response:
        return await face.turn(await request.body(), request.headers.get("x-session-id"))

    @app.post("/v1/abort")
    async def abort(call: AbortCall) -> None:
        await face.abort(call)

    @app.get("/v1/status")
    async def status() -> dict[str, Any]:
        return await face.status()

    @app.put("/v1/weights/{version}")
    async def publish(version: int, request: Request, finish_turns: bool = False) -> dict[str, Any]:
        return await face.publish(version, await request.body(), finish_turns)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": face.name, "object": "model", "owned_by": "rllib_agentic"}]}

    @app.post("/v1/completions", response_model=None)
    async def completions(call: CompletionCall) -> dict[str, Any] | StreamingResponse:
        return await _answered(face, call, "text_completion")

    @app.post("/v1/chat/completions", response_model=None)
    async def chat(call: ChatCall) -> dict[str, Any] | StreamingResponse:
        return await _answered(face, call, "chat.completion")

    return app


async def _answered(
    face: GatewayFace, call: CompletionCall | ChatCall, form: str
) -> dict[str, Any] | StreamingResponse:
    prompt_ids = face.encode(call)
    if not call.stream:
        return await _completed(face, call, form, prompt_ids)
    pieces = face.watch(call, prompt_ids)
    first = await anext(pieces)  # what cannot be sampled at all is refused by a status
    return StreamingResponse(_events(face, call, form, len(prompt_ids), first, pieces), media_type="text/event-stream")


async def _completed(face: GatewayFace, call: Sampling, form: str, prompt_ids: list[int]) -> dict[str, Any]:
    found = await face.complete(call, prompt_ids)
    choices = []
    for index, (text, turn) in enumerate(found):
        said = {"message": {"role": "assistant", "content": text}} if isinstance(call, ChatCall) else {"text": text}
        choices.append({"index": index, **said, **_end(call, turn)})
    turns = [turn for _, turn in found]
    return {
        **_frame(face, form),
        "choices": choices,
        "weight_version": turns[0].weight_version,
        "usage": _usage(len(prompt_ids), turns),
    }


async def _events(
    face: GatewayFace,
    call: Sampling,
    form: str,
    prompt_tokens: int,
    first: tuple[int, tuple[str, TurnAnswer | None]],
    others: AsyncGenerator[tuple[int, tuple[str, TurnAnswer | None]]],
) -> AsyncIterator[str]:
    """Server-sent events, in OpenAI's form; an error after the first one is an event too, and the last."""
    is_chat = isinstance(call, ChatCall)
    frame = _frame(face, form + ".chunk" if is_chat else form)
    going_on = {"logprobs": None, "finish_reason": None}
    turns: list[TurnAnswer] = []
    if is_chat:
        for index in range(call.n):
            role = {"index": index, "delta": {"role": "assistant", "content": ""}, **going_on}
            yield event({**frame, "choices": [role]})
    piece: tuple[int, tuple[str, TurnAnswer | None]] | None = first
    try:
        async with aclosing(others):
            while piece is not None:
                index, (text, turn) = piece
                said = {"delta": {"content": text} if text else {}} if is_chat else {"text": text}
                choice = {"index": index, **said, **(going_on if turn is None else _end(call, turn))}
                version = {} if turn is None else {"weight_version": turn.weight_version}
                turns += [] if turn is None else [turn]
                yield event({**frame, "choices": [choice], **version})
                piece = await anext(others, None)
    except (InputError, InfrastructureError) as error:
        kind = "invalid_request_error" if isinstance(error, InputError) else error.kind
        yield event({"error": {"message": str(error), "type": kind}})
        return
    if call.stream_options is not None and call.stream_options.include_usage:
        yield event({**frame, "choices": [], "usage": _usage(prompt_tokens, turns)})
    yield event("[DONE]")


def _frame(face: GatewayFace, form: str) -> dict[str, Any]:
    return {"id": f"cmpl-{uuid.uuid4().hex}", "object": form, "created": int(time.time()), "model": face.name}


def _end(call: Sampling, turn: TurnAnswer) -> dict[str, Any]:
    """Why a choice ended, and its tokens where they are asked for."""
    logprobs = {"token_ids": turn.token_ids, "token_logprobs": turn.logprobs} if call.logprobs else None
    reason = "length" if turn.finish_reason is FinishReason.LENGTH else "stop"
    return {"logprobs": logprobs, "finish_reason": reason}


def _usage(prompt_tokens: int, turns: list[TurnAnswer]) -> dict[str, int]:
    spoken = sum(len(turn.token_ids) for turn in turns)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": spoken,
        "total_tokens": prompt_tokens + spoken,
    }
