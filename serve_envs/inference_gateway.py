"""The HTTP face of an engine: turns in token ids, weights, and OpenAI's completions for other clients."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import numpy as np
import safetensors.numpy
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from ray import serve
from ray.serve.handle import DeploymentHandle

from rllib_agentic.engines.remote import RemoteEngine
from rllib_agentic.engines.token_wire import TurnAnswer, TurnError, TurnRequest
from rllib_agentic.engines.vllm_transport import HandleTurns
from rllib_agentic.errors import InfrastructureError, InputError, StaleWeightsError
from rllib_agentic.rl_module.model_loading import load_stop_ids, load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings
from rllib_agentic.trajectory.turn import FinishReason
from serve_envs.weight_store import Published, find_store

_STATUS = {"input": 422, "stale_weights": 409, "infrastructure": 503}


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
        self._face = GatewayFace(model, app, replicas)

    def __serve_build_asgi_app__(self) -> FastAPI:
        return make_inference_http(self._face)


class GatewayFace:
    """What the routes do.

    Args:
        model: which model the replicas have.
        app: the application's name.
        replicas: handle of the replicas.
    """

    def __init__(self, model: ModelSettings, app: str, replicas: DeploymentHandle) -> None:
        self.name = model.name
        self._app = app
        self._replicas = replicas
        self._turns = HandleTurns(app)
        self._engine = RemoteEngine(self._turns)
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
        seed = uuid.uuid4().int >> 66 if call.seed is None else call.seed
        stop = [call.stop] if isinstance(call.stop, str) else call.stop or []
        answers = await asyncio.gather(
            *(
                self._engine.generate(
                    TurnRequest(
                        prompt_token_ids=prompt_ids,
                        max_tokens=call.max_tokens or call.max_completion_tokens or 16,
                        temperature=call.temperature,
                        seed=seed + i,
                        top_p=call.top_p,
                        stop_token_ids=sorted(self._stop_ids),
                        stop=stop,
                    ).unpack()
                )
                for i in range(call.n)
            )
        )
        request = TurnRequest(prompt_token_ids=prompt_ids, max_tokens=1).unpack()
        return [(self._text(a.ids, stop), TurnAnswer.of(request, a)) for a in answers]

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

    def _text(self, ids: np.ndarray, stop: list[str]) -> str:
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

    @app.post("/v1/completions")
    async def completions(call: CompletionCall) -> dict[str, Any]:
        return await _completed(face, call, "text_completion")

    @app.post("/v1/chat/completions")
    async def chat(call: ChatCall) -> dict[str, Any]:
        return await _completed(face, call, "chat.completion")

    return app


async def _completed(face: GatewayFace, call: CompletionCall | ChatCall, form: str) -> dict[str, Any]:
    if call.stream:
        raise InputError("stream: answers come whole here; leave it out, or set it to false")
    prompt_ids = face.encode(call)
    found = await face.complete(call, prompt_ids)
    choices = []
    for index, (text, turn) in enumerate(found):
        said = {"message": {"role": "assistant", "content": text}} if isinstance(call, ChatCall) else {"text": text}
        reason = "length" if turn.finish_reason is FinishReason.LENGTH else "stop"
        logprobs = {"token_ids": turn.token_ids, "token_logprobs": turn.logprobs} if call.logprobs else None
        choices.append({"index": index, **said, "logprobs": logprobs, "finish_reason": reason})
    spoken = sum(len(turn.token_ids) for _, turn in found)
    return {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": form,
        "created": int(time.time()),
        "model": face.name,
        "choices": choices,
        "weight_version": found[0][1].weight_version,
        "usage": {
            "prompt_tokens": len(prompt_ids),
            "completion_tokens": spoken,
            "total_tokens": len(prompt_ids) + spoken,
        },
    }
