"""What sessions hold is gone when they are: processes and their processes, ports, folders; however they end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from holding_env import HoldingEnv

from rllib_agentic.envs import wire
from rllib_agentic.envs.hosting import EnvHost
from rllib_agentic.errors import InfrastructureError, InputError
from serve_envs.child import Child
from serve_envs.worker import EnvWorker

SOON = wire.Patience(wait_s=60.0, linger_s=60.0)


def listening() -> int:
    return sum(one.status == psutil.CONN_LISTEN for one in psutil.Process().net_connections("tcp"))


def gone(process_ids: list[int], within_s: float = 20.0) -> bool:
    """Whether all these processes end, and nobody's zombie is among them."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not any(map(psutil.pid_exists, process_ids)):
            return True
        time.sleep(0.01)
    return False


def emptied(folder: Path, within_s: float = 20.0) -> bool:
    deadline = time.monotonic() + within_s
    while list(folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not list(folder.iterdir())


def test_five_hundred_sessions_leave_nothing_behind(tmp_path: Path) -> None:
    """A third abandoned, a third whose process is killed under it, a third finished."""

    class Clock:
        now = 0.0

        def __call__(self) -> float:
            return self.now

    async def run() -> list[int]:
        clock = Clock()
        worker = EnvWorker(EnvHost(partial(HoldingEnv, str(tmp_path))), max_sessions=500, ttl_s=5.0, clock=clock)
        ids = [f"s{number}" for number in range(500)]
        create = [wire.CreateRequest(session_id=one, split="train", index=0) for one in ids]
        created = await worker.batch(create, SOON)
        pids = [int(one.observation.messages[0].content) for one in created if isinstance(one, wire.CreateAnswer)]
        assert len(set(pids)) == 500 == len(list(tmp_path.iterdir()))
        assert listening() >= 500
        steps = [wire.StepRequest(session_id=one, step=1, action="look") for one in ids[0::3]]
        steps += [wire.StepRequest(session_id=one, step=1, action="die") for one in ids[1::3]]
        steps += [wire.StepRequest(session_id=one, step=1, action="end") for one in ids[2::3]]
        kinds = [answer.kind for answer in await worker.batch(steps, SOON)]
        assert (kinds.count("stepped"), kinds.count("error")) == (333, 167)
        await worker.batch([wire.CloseRequest(session_id=one) for one in ids[2::3]], SOON)
        clock.now = 6.0
        worker.sweep()
        assert (await worker.health()).workers[0].sessions == 0
        await worker.aclose()
        return pids

    before = listening()
    pids = asyncio.run(run())
    assert gone(pids)
    assert list(tmp_path.iterdir()) == []
    assert listening() == before


SERVER = """
import asyncio, sys
from functools import partial
from holding_env import HoldingEnv
from rllib_agentic.envs import wire
from rllib_agentic.envs.hosting import EnvHost
from serve_envs.worker import EnvWorker

async def run():
    ttl_s = 0.3 if sys.argv[2] == "idle" else 600.0
    worker = EnvWorker(EnvHost(partial(HoldingEnv, sys.argv[1], child=True)), ttl_s=ttl_s)
    patience = wire.Patience(wait_s=60.0, linger_s=60.0)
    creates = [wire.CreateRequest(session_id=f"s{n}", split="train", index=n) for n in range(2)]
    for answer in await worker.batch(creates, patience):
        print(answer.observation.messages[0].content, flush=True)
    if sys.argv[2] == "close":
        await worker.batch([wire.CloseRequest(session_id=f"s{n}") for n in range(2)], patience)
    await asyncio.sleep(600)

asyncio.run(run())
"""


@pytest.mark.parametrize("event", ["close", "idle", "SIGTERM", "SIGKILL"])
def test_processes_under_a_session_end_with_it(tmp_path: Path, event: str) -> None:  # EV16
    """Those of the child, those in a session of their own, and its files; also when the server itself is killed."""
    path = os.pathsep.join(filter(None, sys.path))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path), event],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path, "TMPDIR": str(temporary)},
    )
    try:
        assert server.stdout is not None
        pids = [int(pid) for _ in range(2) for pid in server.stdout.readline().split()]
        assert len(pids) == 4
        assert len(list(temporary.glob("*/*"))) == 2  # each child has made a folder in its own
        if event.startswith("SIG"):
            server.send_signal(getattr(signal, event))
        assert gone(pids)
        assert emptied(temporary)
    finally:
        server.kill()
        server.communicate()


class Held:
    """What the children below hold."""

    def __init__(self, start: int = 0) -> None:
        if start < 0:
            raise InputError(f"start must not be negative, got {start}")
        self.count = start

    def add(self, number: int) -> int:
        self.count += number
        return self.count

    def fail(self, kind: str) -> None:
        if kind == "exit":
            os._exit(3)
        if kind == "hang":
            time.sleep(600)
        if kind == "noise":
            print("noise on standard output", flush=True)
        if kind == "raise":
            raise ValueError("no luck")


def test_a_child_answers_and_tells_what_went_wrong() -> None:
    child = Child("test_env_leftovers:Held", {"start": 5})
    assert child.process_id is None  # it starts at its first call
    assert (child.call("add", 2), child.call("add", 3)) == (7, 10)
    assert child.call("fail", "noise") is None
    with pytest.raises(RuntimeError, match="no luck"):
        child.call("fail", "raise")
    assert child.call("add", 0) == 10
    process_id = child.process_id
    assert process_id is not None
    with pytest.raises(InfrastructureError) as lost:
        child.call("fail", "exit")
    assert (lost.value.kind, child.dead) == ("session_lost", True)
    assert gone([process_id])
    with pytest.raises(InfrastructureError):
        child.call("add", 1)
    child.kill()


def test_a_child_that_hangs_is_killed_and_bad_arguments_stay_input_errors() -> None:
    child = Child("test_env_leftovers:Held", {}, call_timeout_s=60.0)
    child.call("add", 1)
    process_id = child.process_id
    child._call_timeout_s = 0.1
    with pytest.raises(InfrastructureError, match="takes more than"):
        child.call("fail", "hang")
    assert process_id is not None
    assert gone([process_id])
    refused = Child("test_env_leftovers:Held", {"start": -1})
    with pytest.raises(InputError, match="not be negative"):
        refused.call("add", 1)
    refused.kill()
