"""OpenAI's two endpoints, whole and as server-sent events, over a real engine in this process (vLLM's: tests/vllm)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from rllib_agentic.engines.hf import HFEngine
from rllib_agentic.engines.token_wire import Answer, TurnAnswer, TurnError, TurnPiece, TurnRequest
from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.rl_module.model_loading import load_model, load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings
from serve_envs.inference_gateway import GatewayFace, make_inference_http

MODEL = ModelSettings(preset="tiny", hidden_size=32, num_layers=1, num_heads=2)
VERSION = 3
SAID: dict[str, Any] = {"model": "tiny", "max_tokens": 24, "n": 2, "seed": 4, "stop": ["q"]}
CALLS: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "go left"}]},
    "completions": {"prompt": "go left", "logprobs": 1},
}


class Turns:
    """A way to engine ``hf``, which gives turns whole: they are told token by token here."""

    def __init__(self, lost_after: int | None = None) -> None:
        self._engine = HFEngine(load_model(MODEL, seed=1), load_tokenizer(MODEL))
        self._engine.weights_updated(VERSION)
        self._lost_after = lost_after

    async def turn(self, body: bytes, episode_id: str | None) -> bytes:
        request = TurnRequest.model_validate_json(body).unpack()
        try:
            answer: TurnAnswer | TurnError = TurnAnswer.of(request, await self._engine.generate(request))
        except (InputError, InfrastructureError) as error:
            answer = TurnError.of(error)
        return answer.model_dump_json().encode()

    async def watch(self, body: bytes) -> AsyncIterator[bytes]:
        line = await self.turn(body, None)
        answer: Any = TypeAdapter(Answer).validate_json(line)
        for number, token in enumerate(getattr(answer, "token_ids", ())):
            if number == self._lost_after:
                raise ConnectionError("the replica gave no answer")
            yield TurnPiece(token_ids=[token]).model_dump_json().encode()
            await asyncio.sleep(0)
        yield line

    async def abort(self, episode_ids: list[str] | None) -> None:
        self._engine.abort(episode_ids)

    async def aclose(self) -> None:
        self._engine.close()


def ask(turns: Turns, work: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        app = make_inference_http(GatewayFace(MODEL, "app", None, turns))  # type: ignore[arg-type]  # of no replica here
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=60) as client:
            return await work(client)

    return asyncio.run(run())


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    """What its events say; every line is one, and the last is the end's mark."""
    assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
    lines = response.text.split("\n\n")
    assert lines.pop() == "" and all(line.startswith("data: ") for line in lines)
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.parametrize("path", CALLS)
def test_a_stream_adds_up_to_the_answer_that_comes_whole(path: str) -> None:
    async def work(client: httpx.AsyncClient) -> tuple[dict[str, Any], httpx.Response]:
        call = SAID | CALLS[path]
        whole = await client.post(f"/v1/{path}", json=call)
        return whole.json(), await client.post(
            f"/v1/{path}", json=call | {"stream": True, "stream_options": {"include_usage": True}}
        )

    whole, response = ask(Turns(), work)
    *events, usage = events_of(response)
    assert usage["usage"] == whole["usage"] and usage["choices"] == []
    is_chat = path == "chat/completions"
    assert {e["object"] for e in events} == {"chat.completion.chunk" if is_chat else "text_completion"}
    assert len({e["id"] for e in events}) == 1 and len(events) > 20
    for wanted in whole["choices"]:
        mine = [(e, c) for e in events for c in e["choices"] if c["index"] == wanted["index"]]
        *others, (last_event, last) = mine
        assert all(c["finish_reason"] is None and "weight_version" not in e for e, c in others)
        assert last["finish_reason"] == wanted["finish_reason"] and last_event["weight_version"] == VERSION
        assert last["logprobs"] == wanted["logprobs"]
        if is_chat:
            assert mine[0][1]["delta"] == {"role": "assistant", "content": ""}
            assert "".join(c["delta"].get("content", "") for _, c in mine) == wanted["message"]["content"] != ""
        else:
            assert "".join(c["text"] for _, c in mine) == wanted["text"] != ""


def test_what_cannot_be_sampled_is_refused_by_a_status_and_what_is_lost_by_an_event() -> None:
    call = SAID | CALLS["completions"] | {"n": 1, "stream": True}

    async def too_long(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post("/v1/completions", json=call | {"max_tokens": 99_999})

    refused = ask(Turns(), too_long)
    assert refused.status_code == 422 and "max_tokens=99999" in refused.json()["error"]["message"]

    async def lost(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post("/v1/completions", json=call | {"stop": None})

    cut = ask(Turns(lost_after=5), lost)
    assert cut.status_code == 200
    *pieces, last = cut.text.removesuffix("\n\n").split("\n\n")
    assert 0 < len(pieces) <= 5 and json.loads(last.removeprefix("data: "))["error"] == {
        "message": "the replica gave no answer",
        "type": "engine_unreachable",
    }
    assert ask(Turns(lost_after=0), lost).status_code == 503
