"""Workers' own ports: used where they lead to the worker, left where they do not; no step is lost between two ways."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NamedTuple

import httpx
import pytest
from aiohttp import web
from counter_env import CounterEnv, Ledger, QuickCounterEnv

from rllib_agentic.envs import wire
from rllib_agentic.envs.doors import Doors
from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.hosting import EnvHost
from rllib_agentic.envs.http_transport import HttpTransport
from rllib_agentic.envs.remote import RemoteClient
from rllib_agentic.envs.replay import ReplayingClient
from rllib_agentic.envs.retries import RetryPolicy
from rllib_agentic.trajectory.trajectory import Task
from serve_envs.door import Door
from serve_envs.worker import EnvWorker

TASK = Task("counter", "train", 0, 0)
RETRIES = RetryPolicy(max_retries=2, backoff_s=0.0)


class Way:
    """A worker behind an HTTP port, counting what comes this way."""

    def __init__(self, worker: EnvWorker) -> None:
        self.worker = worker
        self.batches = 0

    async def health(self) -> bytes:
        return (await self.worker.health()).model_dump_json().encode()

    async def batch(self, body: bytes) -> bytes:
        self.batches += 1
        request = wire.BatchRequest.model_validate_json(body)
        answers = await self.worker.batch(request.requests, request.patience)
        return wire.BatchAnswer(answers=answers).model_dump_json().encode()


class Service(NamedTuple):
    """A worker, the long way to it (the service's URL), and the straight one."""

    ledger: Ledger
    worker: EnvWorker
    long: Way
    straight: Way
    door: Door
    url: str


@contextlib.asynccontextmanager
async def a_service(env: type[CounterEnv] = QuickCounterEnv) -> AsyncIterator[Service]:
    ledger = Ledger()
    worker = EnvWorker(EnvHost(partial(env, ledger)), "w")
    long, straight = Way(worker), Way(worker)
    front, door = (Door(way.health, way.batch) for way in (long, straight))
    url = await front.open("127.0.0.1")
    worker.address = await door.open("127.0.0.1")
    try:
        yield Service(ledger, worker, long, straight, door, url)
    finally:
        for server in (front, door):
            await server.close()
        await worker.aclose()
        assert ledger.made == ledger.closed


async def counts(session: Any, times: int) -> list[str]:
    return [(await session.step("inc")).observation.messages[0].content for _ in range(times)]


@pytest.mark.parametrize("env", [CounterEnv, QuickCounterEnv])
@pytest.mark.parametrize("direct", [True, False])
def test_batches_go_straight_to_the_worker(env, direct):
    async def run():
        async with a_service(env) as it:
            client = RemoteClient(HttpTransport(it.url, direct=direct), RETRIES)
            sessions = await asyncio.gather(*(client.create(TASK) for _ in range(5)))
            assert await asyncio.gather(*(counts(session, 3) for session in sessions)) == [["1", "2", "3"]] * 5
            await client.aclose()
            used, unused = (it.straight, it.long) if direct else (it.long, it.straight)
            assert (used.batches > 0, unused.batches) == (True, 0)

    asyncio.run(run())


def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("address", ["another worker", "nobody", "no HTTP", "http://no host at all"])
def test_an_address_that_leads_elsewhere_is_left_alone(address):
    async def run():
        async with a_service() as it, contextlib.AsyncExitStack() as stack:
            if address == "another worker":
                stranger = Way(EnvWorker(EnvHost(CounterEnv), "stranger"))
                door = Door(stranger.health, stranger.batch)
                it.worker.address = await door.open("127.0.0.1")
                stack.push_async_callback(door.close)
            elif address == "no HTTP":
                silent = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
                stack.callback(silent.close)
                it.worker.address = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
            else:
                it.worker.address = closed_port() if address == "nobody" else address
            client = RemoteClient(HttpTransport(it.url), RETRIES)
            assert await counts(await client.create(TASK), 3) == ["1", "2", "3"]
            await client.aclose()
            if address == "another worker":
                assert stranger.batches == 0

    asyncio.run(run())


@pytest.mark.parametrize("how", ["closes", "sends away"])
def test_a_door_that_closes_in_the_middle_of_an_episode(how):
    async def run():
        async with a_service() as it:
            client = RemoteClient(HttpTransport(it.url), RetryPolicy(max_retries=0))
            session = await client.create(TASK)
            assert await counts(session, 2) == ["1", "2"]
            if how == "closes":
                await it.door.close()
            it.door.send_away()
            assert await counts(session, 2) == ["3", "4"]
            assert it.long.batches == 2
            await client.aclose()

    asyncio.run(run())


def test_a_connection_that_is_cut_after_the_step_was_done_does_it_once():
    async def run():
        async with a_service() as it:

            async def health(request: web.Request) -> web.Response:
                return web.Response(body=await it.straight.health())

            async def do_it_and_hang_up(request: web.Request) -> web.Response:
                body = await it.straight.batch(await request.read())
                if b'"op":"step"' in await request.read():
                    assert request.transport is not None
                    request.transport.close()
                return web.Response(body=body)

            app = web.Application()
            app.add_routes([web.get("/v1/health", health), web.post("/v1/batch", do_it_and_hang_up)])
            runner = web.AppRunner(app)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            it.worker.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
            client = RemoteClient(HttpTransport(it.url), RetryPolicy(max_retries=0))
            session = await client.create(TASK)
            assert await counts(session, 3) == ["1", "2", "3"]
            assert it.straight.batches == 2  # the create, and the step that was cut off
            assert it.long.batches == 3  # that step again, and what came after it
            await client.aclose()
            await runner.cleanup()

    asyncio.run(run())


def test_a_worker_that_stops_takes_no_new_session_and_its_old_ones_are_rebuilt_elsewhere():
    async def run():
        async with a_service() as it:
            client = ReplayingClient(RemoteClient(HttpTransport(it.url), RETRIES))
            session = await client.create(TASK)
            assert await counts(session, 2) == ["1", "2"]
            await it.worker.aclose()
            (refused,) = await it.worker.batch([wire.CreateRequest(session_id="w.late", split="train", index=0)],
                                            wire.Patience(wait_s=5, linger_s=5))  # fmt: skip
            assert isinstance(refused, wire.ErrorAnswer)
            assert refused.error.code is FaultCode.UNREACHABLE
            successor = EnvWorker(EnvHost(CounterEnv), "successor")
            it.long.worker = successor
            it.door.send_away()
            assert await counts(session, 2) == ["3", "4"]
            assert session.session_id.startswith("successor.")
            await client.aclose()
            assert (await successor.health()).workers[0].sessions == 0

    asyncio.run(run())


def test_what_a_door_refuses():
    async def run():
        async with a_service() as it, httpx.AsyncClient(trust_env=False) as http:
            url = f"{it.worker.address}/v1/batch"
            for body, status, code in [
                (b"{", 422, FaultCode.BAD_INPUT),
                (b'{"requests": [{"op": "fly"}]}', 422, FaultCode.BAD_INPUT),
                (b"x" * (wire.MAX_BODY_BYTES + 1), 413, FaultCode.TOO_LARGE),
            ]:
                response = await http.post(url, content=body)
                assert response.status_code == status
                assert wire.ErrorAnswer.model_validate_json(response.content).error.code is code
            assert (await http.get(f"{it.worker.address}/v1/health")).json()["workers"][0]["worker_id"] == "w"

    asyncio.run(run())


def test_a_worker_that_does_not_answer_is_unreachable_in_time():
    async def run():
        async with a_service(CounterEnv) as it:
            doors_client = Doors()
            doors_client.learn((await it.worker.health()).workers)
            body = wire.BatchRequest(
                requests=[wire.CreateRequest(session_id="w.1", split="train", index=0)],
                patience=wire.Patience(wait_s=5, linger_s=5),
            ).model_dump_json().encode()  # fmt: skip
            assert await doors_client.batch("w", body, 5.0) is not None
            body = body.replace(b'"op":"create"', b'"op":"step","step":1,"action":"wait"')
            body = body.replace(b',"split":"train","index":0,"seed":0', b"")
            with pytest.raises(EnvFault, match="did not answer within") as fault:
                await doors_client.batch("w", body, 0.2)
            assert fault.value.code is FaultCode.UNREACHABLE
            await doors_client.aclose()
            it.worker._host._make.args[0].gate.set()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_a_client_hears_of_workers_that_joined(monkeypatch):
    async def run():
        async with a_service() as it:
            transport = HttpTransport(it.url)
            client = RemoteClient(transport, RETRIES)
            assert (await client.create(TASK)).session_id.startswith("w.")
            it.worker._worker_id = "w2"  # as if this one had joined
            assert (await client.create(TASK)).session_id.startswith("w.")
            monkeypatch.setattr("rllib_agentic.envs.remote._LOOK_AGAIN_S", 0.0)
            for _ in range(100):  # the search goes on beside the creates
                if (await client.create(TASK)).session_id.startswith("w2."):
                    break
                await asyncio.sleep(0.01)
            else:
                pytest.fail("the new worker was never used")
            await client.aclose()

    asyncio.run(run())
