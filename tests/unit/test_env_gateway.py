"""The HTTP face, over one worker in this process: statuses, typed bodies, limits, exact texts, the OpenAPI document."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial

import httpx
import pytest
from counter_env import CounterEnv, Ledger

from rllib_agentic.envs import wire
from rllib_agentic.envs.faults import HTTP_STATUS, EnvFault, FaultCode
from rllib_agentic.envs.hosting import EnvHost
from serve_envs.gateway import make_http_app
from serve_envs.worker import EnvWorker

CREATE = {"session_id": "a", "split": "train", "index": 0}


def over_http(talk: Callable[[httpx.AsyncClient, Ledger], Awaitable[None]], **limits) -> None:
    """Run a conversation with a fresh service; afterwards nothing is left open."""

    async def run() -> None:
        ledger = Ledger()
        worker = EnvWorker(EnvHost(partial(CounterEnv, ledger)), **limits)
        transport = httpx.ASGITransport(make_http_app(worker))
        async with httpx.AsyncClient(transport=transport, base_url="http://env") as http:
            await talk(http, ledger)
        await worker.aclose()
        assert ledger.made == ledger.closed

    asyncio.run(run())


async def post(http: httpx.AsyncClient, path: str, **body) -> httpx.Response:
    return await http.post(f"/v1/{path}", json=body)


def code_of(response: httpx.Response) -> str:
    answer = wire.ErrorAnswer.model_validate_json(response.content)
    assert response.status_code == HTTP_STATUS[answer.error.code]
    return answer.error.code


def test_an_episode_over_http():
    async def talk(http, ledger):
        schema = (await http.get("/v1/schema")).json()
        assert (schema["protocol"], schema["env"]["splits"]) == (1, {"train": 10, "test": 5})
        created = await post(http, "create", **CREATE, seed=9)
        assert created.status_code == 200
        assert created.json()["observation"]["messages"][0]["content"] == "TASK train 0 9"
        stepped = (await post(http, "step", session_id="a", step=1, action="inc")).json()
        assert stepped["result"]["reward"] == 0.1
        state = (await post(http, "state", session_id="a")).json()
        assert (state["steps"], state["over"], state["seed"]) == (1, False, 9)
        health = (await http.get("/v1/health")).json()
        assert health["workers"][0]["sessions"] == 1

    over_http(talk)


def test_closed_sessions():  # EV03
    async def talk(http, ledger):
        await post(http, "create", **CREATE)
        for _ in range(2):
            assert (await post(http, "close", session_id="a")).status_code == 200
        for path, body in [("step", {"step": 1, "action": "x"}), ("state", {}), ("create", CREATE)]:
            response = await post(http, path, **{"session_id": "a", **body})
            assert (response.status_code, code_of(response)) == (410, "session_closed")
        assert (await http.get("/v1/health")).status_code == 200

    over_http(talk)


GOOD, BAD = [0, 9], [10, -1, "3", "abc", 1e9, 3.5, None, True, 10**30]


@pytest.mark.parametrize(("index", "status"), [(i, 200) for i in GOOD] + [(i, 422) for i in BAD])
def test_task_indices(index, status):  # EV15
    async def talk(http, ledger):
        response = await post(http, "create", session_id="a", split="train", index=index)
        assert response.status_code == status
        if status == 422:
            assert code_of(response) == "bad_input"
            assert "index" in response.json()["error"]["message"] or "indices" in response.json()["error"]["message"]
        assert (await http.get("/v1/health")).json()["workers"][0]["sessions"] == (1 if status == 200 else 0)

    over_http(talk)


@pytest.mark.parametrize(
    "action",
    ["a\x00b", "\x1b[31mred\x1b[0m", "x" * 2**20, "\u202eabc", "\ufffe\U0010ffff", "\r\n\t\x7f\x85\u2028", "", "🧊"],
    ids=["nul", "escape", "1MB", "right-to-left", "noncharacters", "line ends", "empty", "emoji"],
)
def test_texts_come_back_exactly(action):  # EV18
    async def talk(http, ledger):
        await post(http, "create", **CREATE)
        response = await post(http, "step", session_id="a", step=1, action=f"echo {action}")
        assert response.json()["result"]["observation"]["messages"][0]["content"] == action

    over_http(talk)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"session_id": "a", "step": 1, "action": "\xff\xfe"}', "bad_json"),
        (b'{"session_id": "a", "step": 1,', "bad_json"),
        (b"", "bad_input"),
        (b"[]", "bad_input"),
        (b'{"session_id": "a", "step": 1, "action": "x", "extra": 1}', "bad_input"),
        (b'{"session_id": "a", "step": 0, "action": "x"}', "bad_input"),
        (b'{"session_id": "a", "step": 1, "action": null}', "bad_input"),
        (b'{"session_id": "../a b", "step": 1, "action": "x"}', "bad_input"),
        (b'{"session_id": "a", "step": 1, "action": "' + b"x" * wire.MAX_BODY_BYTES + b'"}', "too_large"),
    ],
    ids=["not utf-8", "cut short", "nothing", "a list", "unknown key", "step 0", "null", "bad id", "too large"],
)
def test_bad_bodies_are_typed_and_harmless(body, code):  # EV18
    async def talk(http, ledger):
        await post(http, "create", **CREATE)
        response = await http.post("/v1/step", content=body, headers={"Content-Type": "application/json"})
        assert code_of(response) == code
        assert (await post(http, "step", session_id="a", step=1, action="inc")).status_code == 200

    over_http(talk)


def test_a_lone_surrogate_in_an_action_is_a_typed_error():
    async def talk(http, ledger):
        await post(http, "create", **CREATE)
        body = json.dumps({"session_id": "a", "step": 1, "action": "\ud800"}).encode()
        response = await http.post("/v1/step", content=body, headers={"Content-Type": "application/json"})
        assert 400 <= response.status_code < 500
        code_of(response)
        assert (await post(http, "step", session_id="a", step=1, action="inc")).status_code == 200

    over_http(talk)


def test_a_full_service():  # EV05
    async def talk(http, ledger):
        await post(http, "create", **CREATE)
        response = await post(http, "create", session_id="b", split="train", index=1)
        assert (response.status_code, code_of(response)) == (429, "full")
        assert int(response.headers["Retry-After"]) >= 1

    over_http(talk, max_sessions=1)


def test_paths_and_methods_that_are_not_there():
    async def talk(http, ledger):
        for response, status in [(await http.get("/nowhere"), 404), (await http.get("/v1/step"), 405)]:
            assert response.status_code == status
            assert response.json()["error"]["code"] == "not_found"

    over_http(talk)


def test_a_batch_answers_each_on_its_own():
    async def talk(http, ledger):
        requests = [
            {"op": "create", **CREATE},
            {"op": "create", "session_id": "b", "split": "train", "index": 99},
            {"op": "step", "session_id": "a", "step": 1, "action": "inc"},
            {"op": "step", "session_id": "c", "step": 1, "action": "inc"},
            {"op": "close", "session_id": "a"},
        ]
        patience = {"wait_s": 30, "linger_s": 30}
        first = await post(http, "batch", requests=requests[:2], patience=patience)
        second = await post(http, "batch", requests=requests[2:4], patience=patience)
        third = await post(http, "batch", requests=requests[4:], patience=patience)
        answers = [answer for part in (first, second, third) for answer in part.json()["answers"]]
        assert [a["kind"] for a in answers] == ["created", "error", "stepped", "error", "closed"]
        assert [a["error"]["code"] for a in answers if a["kind"] == "error"] == ["bad_input", "unknown_session"]

    over_http(talk)


def test_health_answers_while_steps_sleep():  # EV17
    async def talk(http, ledger):
        await post(http, "create", **CREATE)
        step = asyncio.create_task(post(http, "step", session_id="a", step=1, action="wait"))
        while not ledger.waiting.acquire(blocking=False):
            await asyncio.sleep(0)
        assert (await http.get("/v1/health")).json()["workers"][0]["sessions"] == 1
        assert not step.done()
        ledger.gate.set()
        assert (await step).status_code == 200

    over_http(talk)


def test_figures_and_a_full_reset_over_http():
    async def talk(http, ledger):
        await post(http, "create", **CREATE)
        await post(http, "step", session_id="a", step=1, action="inc")
        (worker,) = (await http.get("/v1/metrics")).json()["workers"]
        assert (worker["sessions"], worker["sessions_begun"], worker["steps"], worker["errors"]) == (1, 1, 1, {})
        assert (await http.post("/v1/full_reset")).json() == {"sessions_closed": 1}
        assert code_of(await post(http, "step", session_id="a", step=2, action="inc")) == "session_closed"
        assert (await post(http, "create", session_id="b", split="train", index=0)).status_code == 200

    over_http(talk)


def test_a_service_whose_workers_are_gone_says_so():
    class Gone:
        async def health(self):
            raise EnvFault(FaultCode.UNREACHABLE, "no worker is running")

    async def run():
        transport = httpx.ASGITransport(make_http_app(Gone()))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://env") as http:
            for path in ("/v1/health", "/openenv/health"):
                assert code_of(await http.get(path)) == "unreachable"

    asyncio.run(run())


def test_the_openapi_document_names_every_path_and_the_error_body():
    async def talk(http, ledger):
        document = (await http.get("/openapi.json")).json()
        paths = {
            f"/v1/{name}"
            for name in ("health", "metrics", "full_reset", "schema", "create", "step", "state", "close", "batch")
        }
        assert paths == {path for path in document["paths"] if path.startswith("/v1/")}
        assert {"/agentgym/create", "/agentgym/{split}/reset", "/openenv/step"} <= set(document["paths"])
        step = document["paths"]["/v1/step"]["post"]
        assert "StepRequest" in json.dumps(step["requestBody"])
        assert {"200", "404", "409", "410", "413", "422", "429", "500"} <= set(step["responses"])
        assert all("ErrorAnswer" in json.dumps(r) for s, r in step["responses"].items() if s != "200")

    over_http(talk)


def test_every_fault_has_a_status():
    assert set(HTTP_STATUS) == set(FaultCode)
