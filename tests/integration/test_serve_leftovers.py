"""What sessions hold on a deployed service is gone when they are: processes, ports and folders, however they end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import holding_env
import psutil
import pytest
import ray
from holding_env import HoldingEnv
from ray import serve

from rllib_agentic.envs.remote import RemoteClient
from rllib_agentic.envs.retries import RetryPolicy
from rllib_agentic.envs.serve_transport import ServeTransport
from rllib_agentic.envs.settings import EnvSettings
from rllib_agentic.errors import InfrastructureError
from rllib_agentic.trajectory.trajectory import Task
from serve_envs.app import deploy_app, undeploy

pytestmark = pytest.mark.ray

SESSIONS = 500
CLIENT = """
import asyncio, sys
from rllib_agentic.envs.http_transport import HttpTransport
from rllib_agentic.envs.remote import RemoteClient
from rllib_agentic.trajectory.trajectory import Task

async def run():
    client = RemoteClient(HttpTransport(sys.argv[1]))
    made = [client.create(Task("holding", "train", number, 0)) for number in range(int(sys.argv[2]))]
    for session in await asyncio.gather(*made):
        print(session.first.messages[0].content)
    print("all", flush=True)
    await asyncio.sleep(600)

asyncio.run(run())
"""


@pytest.fixture(scope="module")
def http_port() -> Iterator[int]:
    ray.init(address="local", num_cpus=2, object_store_memory=100_000_000, include_dashboard=False, log_to_driver=False)
    ray.cloudpickle.register_pickle_by_value(holding_env)
    try:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        yield port
        assert serve.status().applications == {}
    finally:
        ray.cloudpickle.unregister_pickle_by_value(holding_env)
        ray.shutdown()


@contextmanager
def deployed(name: str, port: int, settings: EnvSettings, folder: Path, child: bool = False) -> Iterator[str]:
    app = deploy_app(partial(HoldingEnv, str(folder), child=child), settings, name, http_port=port)
    try:
        yield app
    finally:
        undeploy(app)


def comes_true(condition: Callable[[], bool], within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def listening(process_ids: set[int]) -> int:
    found = (one for pid in process_ids for one in psutil.Process(pid).net_connections("tcp"))
    return sum(one.status == psutil.CONN_LISTEN for one in found)


def none_runs(process_ids: set[int]) -> bool:
    return not any(map(psutil.pid_exists, process_ids))


async def live_sessions(app: str) -> int:
    return sum(worker.sessions for worker in (await ServeTransport.to_app(app).health()).workers)


def test_five_hundred_sessions_leave_nothing_behind(tmp_path: Path, http_port: int) -> None:
    """A third of a client that is killed, a third whose process is killed under it, a third finished."""
    settings = EnvSettings(num_replicas=2, max_sessions=SESSIONS, ttl_s=15.0)
    with deployed("holding", http_port, settings, tmp_path) as app:
        workers = five_hundred_sessions(app, tmp_path, f"http://127.0.0.1:{http_port}/{app}")
    assert comes_true(lambda: none_runs(workers))


def five_hundred_sessions(app: str, folder: Path, url: str) -> set[int]:
    """Play them; gives the processes of the workers."""

    async def episode(client: RemoteClient, number: int) -> int:
        session = await client.create(Task("holding", "train", number, 0))
        if number % 2:
            with pytest.raises(InfrastructureError):
                await session.step("die")
        else:
            assert (await session.step("end")).terminated
            await session.close()
        return int(session.first.messages[0].content)

    async def replicas() -> set[int]:
        """Processes of the workers, with nobody in them."""
        client = RemoteClient(ServeTransport.to_app(app))
        found: set[int] = set()
        while len(found) < 2:
            session = await client.create(Task("holding", "train", 0, 0))
            found.add(psutil.Process(int(session.first.messages[0].content)).ppid())
            await session.close()
        await client.aclose()
        return found

    async def play(count: int) -> list[int]:
        client = RemoteClient(ServeTransport.to_app(app), RetryPolicy(max_retries=0))
        pids = await asyncio.gather(*(episode(client, number) for number in range(count)))
        await client.aclose()
        return pids

    workers = asyncio.run(replicas())
    assert comes_true(lambda: not list(folder.iterdir()))
    ports = listening(workers)
    abandoned = SESSIONS // 3
    doomed = subprocess.Popen(
        [sys.executable, "-c", CLIENT, url, str(abandoned)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert doomed.stdout is not None
        held = [int(line) for line in iter(doomed.stdout.readline, "all\n")]
        assert len(set(held)) == abandoned == len(list(folder.iterdir()))
        assert listening(workers) == ports + abandoned
    finally:
        doomed.send_signal(signal.SIGKILL)
        doomed.communicate()
    played = asyncio.run(play(SESSIONS - abandoned))
    assert len({*held, *played}) == SESSIONS
    assert comes_true(lambda: asyncio.run(live_sessions(app)) == 0)
    assert comes_true(lambda: none_runs({*held, *played}))
    assert comes_true(lambda: not list(folder.iterdir()))
    assert comes_true(lambda: listening(workers) == ports)
    return workers


@pytest.mark.parametrize("event", ["undeployed", "SIGKILL"])
def test_children_end_with_the_service_that_holds_them(tmp_path: Path, http_port: int, event: str) -> None:
    """Those in a session of their own too, and their folders; also when the replica itself is killed."""

    async def play(app: str) -> tuple[set[int], list[Path]]:
        transport = ServeTransport.to_app(app)
        client = RemoteClient(transport, RetryPolicy(max_retries=0))
        sessions = [await client.create(Task("holding", "train", number, 0)) for number in range(4)]
        pids = {int(pid) for session in sessions for pid in session.first.messages[0].content.split()}
        told = [await session.step("where") for session in sessions]
        await transport.aclose()  # and not the client, which would close its sessions
        return pids, [Path(result.observation.messages[0].content).parent for result in told]

    with deployed(f"children-{event.lower()}", http_port, EnvSettings(), tmp_path, child=True) as app:
        pids, folders = asyncio.run(play(app))
        assert len(pids) == 8 and all(folder.is_dir() for folder in folders)
        (worker,) = {parent for pid in pids if (parent := psutil.Process(pid).ppid()) not in pids}
        if event == "SIGKILL":
            os.kill(worker, signal.SIGKILL)
        else:
            undeploy(app)
        assert comes_true(lambda: none_runs({*pids, worker}))
        assert comes_true(lambda: not any(folder.exists() for folder in folders))
