"""The service on a real Ray Serve: sticky sessions, a replica's death, the health check, nothing left behind."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import counter_env
import httpx
import pytest
import ray
from counter_env import CounterEnv
from ray import serve

from rllib_agentic.envs.client import service_figures
from rllib_agentic.envs.env import StepResult
from rllib_agentic.envs.http_transport import HttpTransport
from rllib_agentic.envs.remote import RemoteClient
from rllib_agentic.envs.replay import ReplayingClient
from rllib_agentic.envs.retries import RetryPolicy
from rllib_agentic.envs.serve_transport import ServeTransport
from rllib_agentic.envs.service_metrics import summarize
from rllib_agentic.envs.session import EnvSession
from rllib_agentic.envs.settings import EnvSettings
from rllib_agentic.envs.wire import routing_key
from rllib_agentic.errors import InfrastructureError
from rllib_agentic.trajectory.trajectory import Task
from serve_envs.app import deploy_app, undeploy

pytestmark = pytest.mark.ray

REPLICAS = 3
RETRIES = RetryPolicy(max_retries=4, backoff_s=0.05)


class Service(NamedTuple):
    app: str
    url: str

    def transport(self, direct: bool = True) -> ServeTransport:
        return ServeTransport.to_app(self.app, direct)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    ray.init(
        address="local",
        num_cpus=4,
        object_store_memory=100_000_000,
        include_dashboard=False,
        log_to_driver=False,
        _system_config={"metrics_report_interval_ms": 500},
    )
    try:
        ray.cloudpickle.register_pickle_by_value(counter_env)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        app = deploy_app(CounterEnv, EnvSettings(num_replicas=REPLICAS), "processes", http_port=port)
        yield Service(app, f"http://127.0.0.1:{port}/{app}")
        undeploy(app)
        assert serve.status().applications == {}
    finally:
        ray.cloudpickle.unregister_pickle_by_value(counter_env)
        ray.shutdown()


def task(number: int) -> Task:
    return Task("counter", "train", number % 10, number)


async def text(session: EnvSession, action: str) -> str:
    return (await session.step(action)).observation.messages[0].content


async def live_sessions(transport: ServeTransport) -> int:
    return sum(worker.sessions for worker in (await transport.health()).workers)


@pytest.mark.parametrize("direct", [True, False])
def test_no_step_is_lost_over_three_replicas(service, direct):  # FT04: 30 sessions, 5 steps
    async def episode(client, number):
        session = await client.create(task(number))
        counts = [await text(session, "inc") for _ in range(5)]
        assert counts == ["1", "2", "3", "4", "5"]
        pid = await text(session, "pid")
        await session.close()
        return routing_key(session.session_id), pid

    async def run():
        transport = service.transport(direct)
        client = RemoteClient(transport, RetryPolicy(max_retries=0))
        homes = await asyncio.gather(*(episode(client, number) for number in range(30)))
        assert len(set(homes)) == REPLICAS  # each routing key is one process, and each process one key
        assert all(homes.count(home) == 10 for home in homes)  # evenly spread
        assert await live_sessions(transport) == 0
        await client.aclose()

    asyncio.run(run())


def test_any_session_id_works_over_http(service):  # FT04, for callers who know nothing of routing keys
    async def episode(http, name):
        create = {"session_id": name, "split": "train", "index": 0}
        assert (await http.post("/v1/create", json=create)).status_code == 200
        for number in range(1, 6):
            response = await http.post("/v1/step", json={"session_id": name, "step": number, "action": "inc"})
            assert response.json()["result"]["observation"]["messages"][0]["content"] == str(number)
        assert (await http.post("/v1/close", json={"session_id": name})).json()["was_open"]

    async def run():
        async with httpx.AsyncClient(base_url=service.url, timeout=60) as http:
            await asyncio.gather(*(episode(http, f"caller-{number}") for number in range(20)))
            paths = (await http.get("/openapi.json")).json()["paths"]
            assert "/v1/batch" in paths

    asyncio.run(run())


def test_the_health_check_answers_while_steps_sleep(service):  # EV17
    async def run():
        client = RemoteClient(service.transport(), RETRIES)
        sessions = await asyncio.gather(*(client.create(task(number)) for number in range(8)))
        waiting = [asyncio.create_task(session.step("wait")) for session in sessions]
        other = await client.create(task(9))
        assert await text(other, "inc") == "1"
        async with httpx.AsyncClient(base_url=service.url, timeout=60) as http:
            health = (await http.get("/v1/health")).json()
        assert sum(worker["sessions"] for worker in health["workers"]) == 9
        assert not any(step.done() for step in waiting)
        for step in waiting:
            step.cancel()
        await client.aclose()  # closing does not wait for what is stuck inside
        assert await live_sessions(service.transport()) == 0

    asyncio.run(run())


def test_two_hundred_sessions_leave_nothing_behind(service):  # EV01: a third each cancelled, closed, failing
    async def episode(client, number):
        session = await client.create(task(number))
        await session.step("inc")
        match number % 3:
            case 0:
                step = asyncio.create_task(session.step("wait"))
                await asyncio.sleep(0)
                step.cancel()
            case 1:
                await session.close()
            case 2:
                with pytest.raises(InfrastructureError):
                    await session.step("raise")

    async def run():
        client = RemoteClient(service.transport(), RETRIES)
        await asyncio.gather(*(episode(client, number) for number in range(200)))
        await client.aclose()
        assert await live_sessions(service.transport()) == 0

    threads = threading.active_count()
    asyncio.run(run())
    assert threading.active_count() <= threads + 5


@pytest.mark.parametrize(("backend", "direct"), [("serve", True), ("serve", False), ("url", True)])
def test_a_replica_dies_in_the_middle_of_episodes(service, backend, direct):  # FT03: at step 3
    def connect():
        return service.transport(direct) if backend == "serve" else HttpTransport(service.url, direct=direct)

    async def run():
        plain, replaying = RemoteClient(connect(), RETRIES), ReplayingClient(RemoteClient(connect(), RETRIES))
        lost = [await plain.create(task(number)) for number in range(6)]
        saved = [await replaying.create(task(number)) for number in range(6)]
        pids = {}
        for session in lost + saved:
            pids[session] = await text(session, "pid")
            assert await text(session, "inc") == "1"
        victim = pids[lost[0]]
        os.kill(int(victim), signal.SIGKILL)

        outcomes = await asyncio.gather(*(session.step("inc") for session in lost), return_exceptions=True)
        for session, outcome in zip(lost, outcomes, strict=True):
            if pids[session] == victim:
                assert isinstance(outcome, InfrastructureError)
                assert outcome.kind == "session_lost"
            else:
                assert isinstance(outcome, StepResult)
                assert outcome.observation.messages[0].content == "2"
        assert sum(pids[session] == victim for session in lost) == 2

        # "pid" differs in another process, so those rebuilds are refused; the others go on undisturbed
        outcomes = await asyncio.gather(*(session.step("inc") for session in saved), return_exceptions=True)
        for session, outcome in zip(saved, outcomes, strict=True):
            if pids[session] == victim:
                assert "differs at step 1" in str(outcome)
            else:
                assert isinstance(outcome, StepResult)
                assert outcome.observation.messages[0].content == "2"

        while len({w.worker_id for w in (await service.transport().health()).workers}) < REPLICAS:
            await asyncio.sleep(0.1)  # the replacement is on its way
        survivors = [session for session in lost if pids[session] != victim]
        assert [await text(session, "inc") for session in survivors] == ["3"] * 4  # its arrival moves nobody
        fresh = await asyncio.gather(*(replaying.create(task(number)) for number in range(6)))
        assert [await text(session, "inc") for session in fresh] == ["1"] * 6
        await plain.aclose()
        await replaying.aclose()

    asyncio.run(run())


def test_a_lost_episode_goes_on_elsewhere(service):
    async def run():
        client = ReplayingClient(RemoteClient(service.transport(), RETRIES))
        session = await client.create(task(3))
        assert [await text(session, action) for action in ("inc", "inc", "set x=5")] == ["1", "2", "set x=5"]
        witness = RemoteClient(service.transport(), RETRIES)
        neighbours = [await witness.create(task(number)) for number in range(REPLICAS)]
        home = next(n for n in neighbours if routing_key(n.session_id) == routing_key(session.session_id))
        os.kill(int(await text(home, "pid")), signal.SIGKILL)
        assert await text(session, "inc") == "3"
        assert await text(session, "get x") == "5"
        await client.aclose()
        await witness.aclose()

    asyncio.run(run())


def test_the_figures_of_all_replicas_and_their_place_on_rays_endpoint(service):
    async def run():
        transport = service.transport()
        while summarize(before := await transport.metrics())["workers"] < REPLICAS:
            await asyncio.sleep(0.1)  # a test above killed one
        client = RemoteClient(transport, RETRIES)
        sessions = await asyncio.gather(*(client.create(task(number)) for number in range(6)))
        await asyncio.gather(*(session.step("inc") for session in sessions))
        with pytest.raises(InfrastructureError):
            await sessions[0].step("raise")
        now = summarize(await transport.metrics())
        grown = {
            name: now[name] - summarize(before).get(name, 0)
            for name in ("sessions_begun", "steps", "errors/env_failed")
        }
        assert grown == {"sessions_begun": 6, "steps": 6, "errors/env_failed": 1}
        assert service_figures(EnvSettings(app=service.app))["steps"] == now["steps"]
        assert service_figures(EnvSettings(url=service.url, backend="url"))["steps"] == now["steps"]
        assert (now["workers"], now["sessions"]) == (REPLICAS, summarize(before)["sessions"] + 5)
        assert (await transport.full_reset()).sessions_closed == now["sessions"]
        await client.aclose()
        node = ray.nodes()[0]
        url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        wanted = re.compile(r'^ray_rllib_env_(steps|step_latency_s)\w*{.*app="processes".*env="counter"', re.MULTILINE)
        async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as http:
            while {match[1] for match in wanted.finditer((await http.get(url)).text)} != {"steps", "step_latency_s"}:
                await asyncio.sleep(0.5)

    asyncio.run(run())


def test_an_application_from_serves_own_commands(service):
    from serve_envs.builder import ServeArguments, app

    args = '{"size": 3, "train": 10, "validation": 2, "test": 2}'  # as on the command line
    given = ServeArguments.model_validate({"env": "frozenlake", "args": args, "cpus_per_replica": "0"})
    serve.run(app(given), name="built", route_prefix="/built")
    response = httpx.get(service.url.replace("processes", "built") + "/v1/schema", timeout=60, trust_env=False)
    assert response.json()["env"]["splits"] == {"train": 10, "validation": 2, "test": 2}
    serve.delete("built")


DRIVER = """
import ray, sys, time
ray.init(address=sys.argv[1], log_to_driver=False)
from rllib_agentic.envs.settings import EnvSettings
from serve_envs.app import deploy
print(deploy("bandit", EnvSettings()), flush=True)
time.sleep(600)
"""


def test_a_killed_driver_leaves_no_application_on_the_cluster(service):
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, ray.get_runtime_context().gcs_address], stdout=subprocess.PIPE, text=True
    )
    try:
        assert driver.stdout is not None
        app = driver.stdout.readline().strip()
        assert app in serve.status().applications
    finally:
        driver.kill()
        driver.communicate()
    deadline = time.monotonic() + 120
    while app in serve.status().applications and time.monotonic() < deadline:
        time.sleep(0.5)
    assert set(serve.status().applications) == {"processes"}  # what others hold goes on
