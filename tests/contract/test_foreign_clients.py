"""Our clients for servers of AgentGym and OpenEnv: episodes, recovery, bad answers, and nothing left behind.

1. An episode over either dialect, on a real HTTP server, shows what the same episode shows in this process.
2. A step is sent once; what is lost is rebuilt by replay, never guessed.
3. Answers that are not of the dialect are infrastructure errors, never rewards.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from counter_env import CounterEnv, Ledger
from fastapi import FastAPI, WebSocket
from http_service import served

from rllib_agentic.components import parse_settings
from rllib_agentic.envs.agentgym import AgentGymClient, AgentGymDialect
from rllib_agentic.envs.agentgym_styles import AGENTGYM_STYLES
from rllib_agentic.envs.client import check_env_config, make_client
from rllib_agentic.envs.env import Observation
from rllib_agentic.envs.hosting import EnvHost
from rllib_agentic.envs.retries import RetryPolicy
from rllib_agentic.envs.session import EnvClient
from rllib_agentic.envs.settings import EnvSettings
from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.trajectory import Task
from serve_envs.gateway import make_http_app
from serve_envs.worker import EnvWorker

TASKS = {"train": [0, 10], "test": [10, 15]}


@contextmanager
def hosted(name: str, noise: Callable[[], int] | None = None, ttl_s: float = 600.0) -> Iterator[tuple[str, Ledger]]:
    ledger = Ledger()
    worker = EnvWorker(EnvHost(partial(CounterEnv, ledger, noise, name=name)), ttl_s=ttl_s)
    ledger.made = ledger.closed = 0
    with served(make_http_app(worker)) as url:
        yield url, ledger


def with_client(client: EnvClient, talk: Callable[[Any], Awaitable[None]]) -> None:
    async def run() -> None:
        try:
            await talk(client)
        finally:
            await client.aclose()

    asyncio.run(run())


def all_closed(ledger: Ledger) -> bool:
    deadline = time.monotonic() + 20
    while ledger.made != ledger.closed and time.monotonic() < deadline:
        time.sleep(0.005)
    return ledger.made == ledger.closed


@pytest.mark.parametrize("name", AGENTGYM_STYLES)
def test_an_episode_on_an_agentgym_server(name: str) -> None:
    async def talk(client: EnvClient) -> None:
        schema = await client.schema()
        assert (schema.name, schema.splits) == (name, {"train": 10, "test": 5})
        for _ in range(2):  # the second time in a session that is used again
            session = await client.create(Task(name, "test", 2, 0))
            assert session.first.messages == (Message("system", "Count."), Message("user", "TASK test 2 0"))
            assert session.first.actions == (("inc", "end") if name == "alfworld" else None)
            step = await session.step("inc")
            assert (step.observation.messages[0].content, step.terminated) == ("1", False)
            assert step.reward == pytest.approx(0.1)
            end = await session.step("end")
            assert (end.terminated, end.reward) == (True, pytest.approx(1.0))
            assert end.success
            await session.close()

    with hosted(name) as (url, ledger):
        dialect = {"type": "agentgym", "tasks": TASKS, "instructions": "Count."}
        config = {"url": f"{url}/agentgym", "dialect": dialect}
        assert check_env_config(name, config).splits == {"train": 10, "test": 5}
        with_client(make_client(name, config), talk)
        if AGENTGYM_STYLES[name].closes:
            assert all_closed(ledger)


def test_an_episode_on_an_openenv_server() -> None:
    async def talk(client: EnvClient) -> None:
        assert (await client.schema()).lists_actions
        one, other = await asyncio.gather(*(client.create(Task("mine", "test", i, 0)) for i in (2, 3)))
        assert one.first == Observation((Message("user", "TASK test 2 12"),), ("inc", "end"))
        assert other.first.messages[0].content == "TASK test 3 13"
        step = await one.step("inc")
        assert (step.observation.messages[0].content, step.reward, step.terminated) == ("1", 0.1, False)
        cut = await other.step("cut")
        assert (cut.truncated, cut.terminated, cut.success) == (True, False, False)
        end = await one.step("end")
        assert (end.terminated, end.success) == (True, True)
        await one.close()

    with hosted("counter") as (url, ledger):
        dialect = {"type": "openenv", "tasks": TASKS, "actions_field": "actions", "reset": {"split": "test"}}
        with_client(make_client("mine", {"url": f"{url}/openenv", "dialect": dialect}), talk)
        assert all_closed(ledger)


@pytest.mark.parametrize("dialect", ["agentgym", "openenv"])
def test_a_session_that_the_server_lost_is_rebuilt(dialect: str) -> None:
    async def talk(client: EnvClient) -> None:
        session = await client.create(Task("babyai", "train", 3, 0))
        for action in ("inc", "inc", "set x=5"):
            await session.step(action)
        first_socket_or_number = session._session  # type: ignore[attr-defined]
        if dialect == "openenv":
            first_socket_or_number._talk._socket.transport.abort()
        else:
            await first_socket_or_number._client._close(first_socket_or_number._number)
        assert (await session.step("inc")).observation.messages[0].content == "3"
        assert (await session.step("get x")).observation.messages[0].content == "5"
        await session.close()

    with hosted("babyai") as (url, ledger):
        config = {"url": f"{url}/{dialect}", "dialect": {"type": dialect, "tasks": TASKS}}
        with_client(make_client("babyai", config), talk)
        assert all_closed(ledger)


@pytest.mark.parametrize("dialect", ["agentgym", "openenv"])
def test_an_environment_that_breaks_and_tasks_that_are_none(dialect: str) -> None:
    async def talk(client: EnvClient) -> None:
        session = await client.create(Task("babyai", "train", 0, 0))
        with pytest.raises(InfrastructureError, match="the environment broke") as failure:
            await session.step("raise")
        assert failure.value.kind == "env_error"
        await session.close()
        for split, index in (("train", 10), ("train", -1), ("dev", 0)):
            with pytest.raises(InputError):
                await client.create(Task("babyai", split, index, 0))
        again = await client.create(Task("babyai", "train", 0, 0))
        assert (await again.step("inc")).reward == pytest.approx(0.1)

    with hosted("babyai") as (url, _):
        config = {"url": f"{url}/{dialect}", "max_rebuilds": 0, "dialect": {"type": dialect, "tasks": TASKS}}
        with_client(make_client("babyai", config), talk)


GOOD = {"observation": "x", "reward": 0.5, "done": False, "score": 0.5}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (httpx.Response(500, text="{}"), "session_lost"),
        (httpx.Response(502, text="<html>Bad Gateway</html>"), "session_lost"),
        (httpx.Response(200, text="<html>login</html>"), "session_lost"),
        (httpx.Response(200, text=""), "session_lost"),
        (httpx.Response(200, json={"reward": None}), "session_lost"),
        (httpx.Response(200, json=GOOD | {"reward": None}), "session_lost"),
        (httpx.Response(200, text=json.dumps(GOOD | {"score": float("nan")})), "session_lost"),
        (httpx.Response(200, json=GOOD | {"observation": None}), "session_lost"),
        (httpx.Response(200, json=GOOD | {"done": "no"}), "session_lost"),
        (httpx.Response(204), "session_lost"),
        (httpx.Response(302, headers={"location": "http://127.0.0.1:9/"}), "session_lost"),
        (httpx.Response(200, json={"error": "the game broke"}), "env_error"),
        (httpx.Response(200, json={"error": "The id 3 is not valid."}), "session_lost"),
        (httpx.ConnectError("refused"), "session_lost"),
        (httpx.ReadTimeout("slow"), "session_lost"),
    ],
)
def test_bad_answers_of_an_agentgym_server(answer: httpx.Response | Exception, kind: str) -> None:  # EV06
    sent: list[str] = []

    def serve(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.path)
        if request.url.path == "/step":
            if isinstance(answer, Exception):
                raise answer
            return answer
        return httpx.Response(200, json={"id": 3} if request.url.path == "/create" else GOOD)

    async def run() -> None:
        client = AgentGymClient(
            "http://env",
            "babyai",
            AgentGymDialect.model_validate({"tasks": TASKS}),
            transport=httpx.MockTransport(serve),
        )
        session = await client.create(Task("babyai", "train", 0, 0))
        with pytest.raises(InfrastructureError, match="http://env") as failure:
            await session.step("go")
        assert failure.value.kind == kind
        with pytest.raises(InfrastructureError, match="closed"):  # nobody knows what the server did: no second try
            await session.step("go")
        await client.aclose()
        assert sent.count("/step") == 1
        assert sent[-1] == "/close"  # and the number is not used again

    asyncio.run(run())


@pytest.mark.parametrize(
    "answer",
    ["", "[]", '{"type": "observation"}', '{"type": "observation", "data": {"observation": {"text": "x"}}}',
     '{"type": "observation", "data": {"observation": {"text": "x"}, "reward": NaN, "done": false}}',
     '{"type": "observation", "data": {"observation": {"text": "x"}, "reward": null, "done": false}}',
     '{"type": "state", "data": {}}'],
)  # fmt: skip
def test_bad_answers_of_an_openenv_server(answer: str) -> None:  # EV06
    app = FastAPI()

    @app.get("/schema")
    async def schema() -> dict:
        return {"action": {"required": ["word"], "properties": {"word": {"type": "string"}}}}

    @app.websocket("/ws")
    async def talk_back(socket: WebSocket) -> None:
        await socket.accept()
        await socket.receive_text()
        await socket.send_json({"type": "observation", "data": {"observation": {"a": 1, "b": "see"}, "reward": None}})
        assert json.loads(await socket.receive_text()) == {"type": "step", "data": {"word": "go", "speed": 2}}
        await socket.send_text(answer)

    async def talk(client: EnvClient) -> None:
        session = await client.create(Task("e", "train", 0, 0))
        assert session.first.messages[0].content == "see"
        with pytest.raises(InfrastructureError) as failure:
            await session.step("go")
        assert failure.value.kind == "session_lost"

    with served(app) as url:
        config = {
            "url": url,
            "max_rebuilds": 0,
            "max_retries": 0,
            "dialect": {"type": "openenv", "tasks": TASKS, "action": {"speed": 2}},
        }
        with_client(make_client("e", config), talk)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"dialect": "agentgym"}, "backend is 'serve'"),
        ({"url": "http://h", "dialect": "gym"}, "unknown type 'gym'"),
        ({"url": "http://h", "dialect": "agentgym"}, "tasks: this key is required"),
        ({"url": "http://h", "dialect": {"type": "agentgym", "tasks": {}}}, "at least one split"),
        ({"url": "http://h", "dialect": {"type": "agentgym", "tasks": {"train": [3, 3]}}}, "must hold a task"),
        (
            {"url": "http://h", "dialect": {"type": "openenv", "tasks": {"train": [0, 5], "test": [4, 6]}}},
            "share tasks",
        ),
        ({"url": "http://h", "dialect": {"type": "openenv", "tasks": TASKS, "field": 1}}, "field: unknown key"),
    ],
)
def test_settings_that_cannot_work(spec: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_settings(EnvSettings, spec, "env_config")


def test_a_name_that_agentgym_does_not_know() -> None:
    with pytest.raises(InputError, match="Did you mean 'babyai'"):
        make_client("babyay", {"url": "http://h", "dialect": {"type": "agentgym", "tasks": TASKS}})


def test_a_server_that_is_not_there_stops_the_start() -> None:  # EV07
    for dialect in ("agentgym", "openenv"):
        config = {"url": "http://127.0.0.1:9", "dialect": {"type": dialect, "tasks": TASKS}}
        with pytest.raises(InputError, match=r"http://127.0.0.1:9"):
            check_env_config("babyai", config)


def test_failing_creates_are_bounded() -> None:  # FT09
    asked: list[str] = []

    def serve(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(200, json={"id": 1} if request.url.path == "/create" else {"error": "no game"})

    async def run() -> None:
        client = AgentGymClient(
            "http://env",
            "babyai",
            AgentGymDialect.model_validate({"tasks": TASKS}),
            RetryPolicy(max_retries=3, backoff_s=0.0),
            httpx.MockTransport(serve),
        )
        with pytest.raises(InfrastructureError, match="no game"):
            await client.create(Task("babyai", "train", 0, 0))
        assert asked.count("/reset") == 4
        await client.aclose()

    asyncio.run(run())
