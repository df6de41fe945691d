"""Environments, bare and served: steps a second, time to create a session, memory a session.

    python benchmarks/envs.py                                  # textcraft, 1, 16 and 64 sessions
    python benchmarks/envs.py --envs textcraft frozenlake textworld_express --sessions 16 --seconds 2

Ways to the same environment, one after the other in one run:

* bare: objects in this process, stepped in turn;
* plain: one FastAPI process under uvicorn, a request a step, as AgentGym's servers are built;
* port: one worker behind its own port, without Ray Serve around it (all that ``--without-serve`` measures of ours);
* HTTP: the environment service by its URL, as ``env_config: {url: ...}`` uses it;
* handle: the environment service by its deployment handle, as training uses it;
* HTTP, proxied and handle only: the same with ``direct: false``, every request through Serve's proxy and router.

Sessions act at random, without a pause; an episode that ends is followed by another. CPU counts this process and all
that serve: on a machine with other work it is steadier than time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

import aiohttp
import httpx
import psutil

from rllib_agentic.envs.env import Env, Observation
from rllib_agentic.envs.http_transport import HttpTransport
from rllib_agentic.envs.registry import make_env
from rllib_agentic.envs.remote import RemoteClient
from rllib_agentic.envs.serve_transport import ServeTransport
from rllib_agentic.envs.session import EnvClient, EnvSession
from rllib_agentic.envs.settings import EnvSettings
from rllib_agentic.trajectory.trajectory import Task

OTHERWISE = {"searchqa": "search: capital of Chad", "sciworld": "look around"}
"""What to do where actions cannot be listed."""


def otherwise(name: str) -> str:
    """What a session does where nothing is listed."""
    if name not in OTHERWISE:
        raise SystemExit(f"{name} lists no actions: say in OTHERWISE what its sessions shall do")
    return OTHERWISE[name]


class Figures(NamedTuple):
    """Of one way with so many sessions."""

    steps_per_s: float
    cpu_ms_per_step: float
    resets_per_s: float
    create_ms: float
    memory_mb: float


class _Episode(Protocol):
    """A session, however it is reached."""

    async def reset(self, index: int) -> Observation: ...

    async def step(self, action: str) -> tuple[Observation, bool]: ...

    async def close(self) -> None: ...


def family(processes: list[psutil.Process]) -> list[psutil.Process]:
    found: dict[int, psutil.Process] = {}
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in (process, *process.children(recursive=True)):
                found[one.pid] = one
    return list(found.values())


def cpu_s(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in family(processes):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def memory_mb(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in family(processes):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total / 2**20


async def drive(name: str, make: Callable[[], _Episode], sessions: int, seconds: float, tasks: int,
                serving: list[psutil.Process]) -> Figures:  # fmt: skip
    """Open the sessions at once, let them act until the time is over, and close them."""
    counted = [psutil.Process(), *serving]
    episodes = [make() for _ in range(sessions)]
    before_mb, began = memory_mb(serving or counted), time.perf_counter()
    shown = await asyncio.gather(*(one.reset(number % tasks) for number, one in enumerate(episodes)))
    create_s, held_mb = time.perf_counter() - began, memory_mb(serving or counted) - before_mb
    steps = resets = 0
    end = time.perf_counter() + seconds

    async def act(number: int, observation: Observation) -> None:
        nonlocal steps, resets
        draw = random.Random(number)
        while time.perf_counter() < end:
            actions = observation.actions
            observation, over = await episodes[number].step(draw.choice(actions) if actions else otherwise(name))
            steps += 1
            if over:
                observation = await episodes[number].reset(draw.randrange(tasks))
                resets += 1

    cpu, began = cpu_s(counted), time.perf_counter()
    await asyncio.gather(*(act(number, one) for number, one in enumerate(shown)))
    took, cpu = time.perf_counter() - began, cpu_s(counted) - cpu
    began = time.perf_counter()
    await asyncio.gather(*(one.reset(number % tasks) for number, one in enumerate(episodes)))
    reset_s = time.perf_counter() - began
    await asyncio.gather(*(one.close() for one in episodes))
    return Figures(steps / took, 1000 * cpu / steps, sessions / reset_s, 1000 * create_s / sessions, held_mb / sessions)


class _Bare:
    def __init__(self, name: str) -> None:
        self._env: Env = make_env(name)

    async def reset(self, index: int) -> Observation:
        return self._env.reset("train", index, 0)

    async def step(self, action: str) -> tuple[Observation, bool]:
        result = self._env.step(action)
        await asyncio.sleep(0)
        return result.observation, result.terminated or result.truncated

    async def close(self) -> None:
        self._env.close()


class _Served:
    def __init__(self, client: EnvClient, name: str) -> None:
        self._client, self._name = client, name
        self._session: EnvSession | None = None

    async def reset(self, index: int) -> Observation:
        await self.close()
        self._session = await self._client.create(Task(self._name, "train", index, 0))
        return self._session.first

    async def step(self, action: str) -> tuple[Observation, bool]:
        assert self._session is not None
        result = await self._session.step(action)
        return result.observation, result.terminated or result.truncated

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


PLAIN = """
import sys, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from rllib_agentic.envs.registry import make_env

app, envs, name = FastAPI(), {}, sys.argv[1]

class Reset(BaseModel):
    id: int
    data_idx: int

class Step(BaseModel):
    id: int
    action: str

@app.post("/create")
def create():
    envs[len(envs)] = make_env(name)
    return {"id": len(envs) - 1}

@app.post("/reset")
def reset(body: Reset):
    seen = envs[body.id].reset("train", body.data_idx, 0)
    return {"observation": seen.messages[-1].content, "actions": seen.actions}

@app.post("/step")
def step(body: Step):
    result = envs[body.id].step(body.action)
    return {"observation": result.observation.messages[-1].content, "actions": result.observation.actions,
            "reward": result.reward, "done": result.terminated or result.truncated}

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
"""


class _PlainHttp:
    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http, self._id = http, -1

    async def reset(self, index: int) -> Observation:
        if self._id < 0:
            self._id = (await self._post("/create"))["id"]
        return self._seen(await self._post("/reset", id=self._id, data_idx=index))

    async def step(self, action: str) -> tuple[Observation, bool]:
        answer = await self._post("/step", id=self._id, action=action)
        return self._seen(answer), answer["done"]

    async def _post(self, path: str, **body: object) -> dict:
        async with self._http.post(path, json=body) as response:
            return await response.json()

    async def close(self) -> None: ...

    def _seen(self, answer: dict) -> Observation:
        return Observation((), None if answer["actions"] is None else tuple(answer["actions"]))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


PORT = """
import asyncio, sys
from rllib_agentic.envs import wire
from rllib_agentic.envs.hosting import EnvHost
from rllib_agentic.envs.registry import env_factory
from serve_envs.door import Door
from serve_envs.worker import EnvWorker

async def serve():
    worker = EnvWorker(EnvHost(env_factory(sys.argv[1])), max_sessions=512)

    async def health():
        return (await worker.health()).model_dump_json().encode()

    async def batch(body):
        request = wire.BatchRequest.model_validate_json(body)
        answers = await worker.batch(request.requests, request.patience)
        return wire.BatchAnswer(answers=answers).model_dump_json().encode()

    worker.address = await Door(health, batch).open("127.0.0.1")
    print(worker.address, flush=True)
    await asyncio.Event().wait()

asyncio.run(serve())
"""


@contextlib.contextmanager
def plain_server(name: str) -> Iterator[tuple[str, psutil.Process]]:
    port = free_port()
    server = subprocess.Popen([sys.executable, "-c", PLAIN, name, str(port)])
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            with contextlib.suppress(httpx.HTTPError):
                httpx.get(f"{url}/docs", trust_env=False)
                break
            time.sleep(0.1)
        yield url, psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def worker_port(name: str) -> Iterator[tuple[str, psutil.Process]]:
    server = subprocess.Popen([sys.executable, "-c", PORT, name], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip(), psutil.Process(server.pid)
    finally:
        server.terminate()
        server.communicate()


def replicas(app: str) -> list[psutil.Process]:
    """The processes of a Serve application and the HTTP proxy."""
    named = ((one, " ".join(one.cmdline())) for one in psutil.process_iter() if one.status() != psutil.STATUS_ZOMBIE)
    return [one for one, told in named if f":{app}:" in told or "ProxyActor" in told]


def measure(name: str, sessions: list[int], seconds: float, http_port: int | None) -> list[dict]:
    env = make_env(name)
    tasks = min(env.schema().splits["train"], 500)
    env.reset("train", 0, 0)  # what is made once a process is made now
    env.close()
    rows: list[dict] = []

    def record(way: str, run: Callable[[int], Coroutine[Any, Any, Figures]]) -> None:
        for count in sessions:
            figures = asyncio.run(run(count))
            rows.append({"env": name, "way": way, "sessions": count} | figures._asdict())
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)

    record("bare", lambda count: drive(name, lambda: _Bare(name), count, seconds, tasks, []))
    with plain_server(name) as (url, server):

        async def plainly(count: int) -> Figures:
            connections = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(url, connector=connections) as http:
                return await drive(name, lambda: _PlainHttp(http), count, seconds, tasks, [server])

        record("plain", plainly)

    async def served(make: Callable[[], EnvClient], count: int, serving: list[psutil.Process]) -> Figures:
        client = make()
        try:
            return await drive(name, lambda: _Served(client, name), count, seconds, tasks, serving)
        finally:
            await client.aclose()

    with worker_port(name) as (url, server):
        record("port", lambda count: served(lambda: RemoteClient(HttpTransport(url)), count, [server]))
    if http_port is None:
        return rows
    from serve_envs.app import deploy, undeploy

    app = deploy(name, EnvSettings(max_sessions=512), http_port=http_port)
    try:
        serving = replicas(app)
        url = f"http://127.0.0.1:{http_port}/{app}"
        for way, direct in (("HTTP", True), ("HTTP, proxied", False)):
            http = partial(HttpTransport, url, direct=direct)
            record(way, lambda count, http=http: served(lambda: RemoteClient(http()), count, serving))  # type: ignore[misc]
        for way, direct in (("handle", True), ("handle only", False)):
            handle = partial(ServeTransport.to_app, app, direct)
            record(way, lambda count, handle=handle: served(lambda: RemoteClient(handle()), count, serving))  # type: ignore[misc]
    finally:
        undeploy(app)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Environments, bare and served.")
    parser.add_argument("--envs", nargs="+", default=["textcraft"])
    parser.add_argument("--sessions", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=3.0, help="of stepping, for each way and number of sessions")
    parser.add_argument("--without-serve", action="store_true", help="start no Ray: bare, plain and port alone")
    given = parser.parse_args()
    port = None if given.without_serve else free_port()
    if port is not None:
        import ray

        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    print("| environment | way | sessions | steps/s | CPU ms a step | resets/s | create, ms | MB a session |")
    print("|---|---|---|---|---|---|---|---|")
    for name in given.envs:
        for row in measure(name, given.sessions, given.seconds, port):
            print(
                f"| {row['env']} | {row['way']} | {row['sessions']} | {row['steps_per_s']:.0f} | "
                f"{row['cpu_ms_per_step']:.2f} | {row['resets_per_s']:.0f} | {row['create_ms']:.1f} | "
                f"{row['memory_mb']:.2f} |",
                flush=True,
            )
    if port is not None:
        ray.shutdown()


if __name__ == "__main__":
    main()
