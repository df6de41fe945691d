"""OpenEnv's dialect over a real HTTP server: WebSocket sessions, and HTTP by episode id."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
from counter_env import CounterEnv, Ledger
from http_service import served
from websockets.sync.client import connect

from rllib_agentic.envs.hosting import EnvHost
from serve_envs.gateway import make_http_app
from serve_envs.worker import EnvWorker


@contextmanager
def hosted(max_sessions: int = 256) -> Iterator[tuple[str, Ledger]]:
    ledger = Ledger()
    worker = EnvWorker(EnvHost(partial(CounterEnv, ledger)), max_sessions=max_sessions)
    ledger.made = ledger.closed = 0
    with served(make_http_app(worker)) as url:
        yield f"{url}/openenv", ledger


def say(socket: Any, kind: str, data: dict | None = None) -> dict:
    socket.send(json.dumps({"type": kind} | ({} if data is None else {"data": data})))
    return json.loads(socket.recv(timeout=20))


def test_a_websocket_is_a_session() -> None:
    with hosted() as (url, ledger):
        ws = url.replace("http", "ws") + "/ws"
        with connect(ws, proxy=None) as one, connect(ws, proxy=None) as other:
            first = say(one, "reset", {"seed": 7, "split": "train", "index": 2})
            assert first["type"] == "observation"
            assert first["data"]["observation"]["text"] == "TASK train 2 7"
            assert (first["data"]["reward"], first["data"]["done"]) == (None, False)
            assert say(other, "reset", {"seed": 13})["data"]["observation"]["text"] == "TASK train 3 13"
            step = say(one, "step", {"message": "inc"})["data"]
            assert (step["observation"]["text"], step["reward"], step["done"]) == ("1", 0.1, False)
            assert step["observation"]["actions"] == ["inc", "end"]
            assert say(other, "step", {"message": "get"})["data"]["observation"]["text"] == "0"
            state = say(one, "state")["data"]
            assert (state["step_count"], state["split"], state["index"]) == (1, "train", 2)
            end = say(one, "step", {"message": "end"})["data"]
            assert (end["done"], end["observation"]["success"]) == (True, True)
            assert say(one, "step", {"message": "inc"})["data"]["code"] == "EXECUTION_ERROR"
            assert say(one, "reset", {"seed": 0})["data"]["observation"]["text"] == "TASK train 0 0"
            one.send(json.dumps({"type": "close"}))
        deadline = time.monotonic() + 20
        while (ledger.made, ledger.closed) != (3, 3) and time.monotonic() < deadline:
            time.sleep(0.01)  # the other just went away: its session is closed for it
        assert (ledger.made, ledger.closed) == (3, 3)


def test_messages_that_are_none_are_told_and_harmless() -> None:
    with hosted(max_sessions=1) as (url, _), connect(url.replace("http", "ws") + "/ws", proxy=None) as socket:
        for text, code in [
            ("{", "INVALID_JSON"),
            ("[1]", "UNKNOWN_TYPE"),
            ('{"type": "fly"}', "UNKNOWN_TYPE"),
            ('{"type": "step", "data": {"text": "inc"}}', "VALIDATION_ERROR"),
            ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR"),
            ('{"type": "reset", "data": {"index": 99}}', "EXECUTION_ERROR"),
            ('{"type": "step", "data": {"message": "inc"}}', "EXECUTION_ERROR"),  # before a reset
        ]:
            socket.send(text)
            answer = json.loads(socket.recv(timeout=20))
            assert (answer["type"], answer["data"]["code"]) == ("error", code), answer
        assert say(socket, "reset")["type"] == "observation"
        with connect(url.replace("http", "ws") + "/ws", proxy=None) as late:
            assert say(late, "reset")["data"]["code"] == "CAPACITY_REACHED"


def test_episodes_over_plain_http() -> None:
    with hosted() as (url, _), httpx.Client(base_url=url, timeout=20, trust_env=False) as http:
        assert http.get("/health").json() == {"status": "healthy"}
        schema = http.get("/schema").json()
        assert schema["action"]["required"] == ["message"]
        assert set(schema) == {"action", "observation", "state"}
        assert http.post("/reset").json()["observation"]["text"] == "TASK train 0 0"  # the shared episode
        named = http.post("/reset", json={"episode_id": "mine", "seed": 3, "split": "test", "index": 1}).json()
        assert named["observation"]["text"] == "TASK test 1 3"
        request = {"action": {"message": "inc"}, "timeout_s": 10, "request_id": "r1"}
        assert http.post("/step", json=request | {"episode_id": "mine"}).json()["reward"] == 0.1
        assert http.post("/step", json=request | {"episode_id": "mine"}).json()["observation"]["text"] == "1"
        request["request_id"] = "r2"
        assert http.post("/step", json=request | {"episode_id": "mine"}).json()["observation"]["text"] == "2"
        assert http.post("/step", json=request).json()["observation"]["text"] == "1"
        assert http.get("/state", params={"episode_id": "mine"}).json()["step_count"] == 2
        assert http.get("/state").json()["step_count"] == 1
        refused = http.get("/state", params={"episode_id": "nobodys"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unknown_session")
        assert http.post("/step", json={"action": {"word": "inc"}}).status_code == 422
