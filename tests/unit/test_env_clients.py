"""Clients without Ray: retries, bad answers, batches, cancelled callers, replay, and the settings that choose one."""

import asyncio
import gc
import pickle
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from counter_env import CounterEnv, Ledger

from rllib_agentic.components import parse_settings
from rllib_agentic.envs import wire
from rllib_agentic.envs.client import check_env_config, make_client, service_figures
from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.hosting import EnvHost
from rllib_agentic.envs.http_transport import HttpTransport
from rllib_agentic.envs.local import LocalClient
from rllib_agentic.envs.remote import RemoteClient
from rllib_agentic.envs.replay import ReplayingClient
from rllib_agentic.envs.retries import RetryPolicy
from rllib_agentic.envs.settings import EnvSettings
from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.trajectory.trajectory import Task
from serve_envs.gateway import make_http_app
from serve_envs.worker import EnvWorker

TASK = Task("counter", "train", 0, 0)
TWO_RETRIES = RetryPolicy(max_retries=2, backoff_s=0.0)


class WorkerTransport:
    """Straight to a worker in this process; its calls can be lost on the way out or on the way back."""

    address = "test:counter"

    def __init__(self, worker: EnvWorker) -> None:
        self.worker = worker
        self.calls: list[int] = []
        self.lost_out = self.lost_back = 0
        self.bug: Exception | None = None

    def lane(self, session_id: str) -> str:
        return wire.routing_key(session_id)

    async def health(self) -> wire.HealthAnswer:
        return await self.worker.health()

    async def schema(self) -> wire.SchemaAnswer:
        return await self.worker.schema()

    async def batch(self, requests: Sequence[wire.Request], patience: wire.Patience) -> list[wire.Answer]:
        self.calls.append(len(requests))
        if self.bug is not None:
            raise self.bug
        lost: list[wire.Answer] = [wire.ErrorAnswer.of(EnvFault(FaultCode.UNREACHABLE, "lost"))] * len(requests)
        if self.lost_out:
            self.lost_out -= 1
            return lost
        answers = await self.worker.batch(requests, patience)
        if self.lost_back:
            self.lost_back -= 1
            return lost
        return answers

    async def aclose(self) -> None:
        await self.worker.aclose()


def with_worker(talk: Callable[[RemoteClient, WorkerTransport, Ledger], Awaitable[None]], **limits) -> None:
    async def run() -> None:
        ledger = Ledger()
        transport = WorkerTransport(EnvWorker(EnvHost(partial(CounterEnv, ledger)), **limits))
        client = RemoteClient(transport, TWO_RETRIES)
        await talk(client, transport, ledger)
        await client.aclose()
        assert (await transport.health()).workers[0].sessions == 0
        assert ledger.made == ledger.closed

    asyncio.run(run())


@pytest.mark.parametrize("way", ["lost_out", "lost_back"])
def test_a_lost_call_is_sent_again_and_counts_once(way):
    async def talk(client, transport, ledger):
        setattr(transport, way, 2)
        session = await client.create(TASK)
        for expected in ("1", "2"):
            setattr(transport, way, 2)
            assert (await session.step("inc")).observation.messages[0].content == expected
        setattr(transport, way, 2)
        await session.close()
        assert ledger.made == 2  # one told the schema

    with_worker(talk)


def test_calls_that_stay_lost_make_the_service_unreachable():
    async def talk(client, transport, ledger):
        session = await client.create(TASK)
        transport.lost_out = 3
        with pytest.raises(InfrastructureError, match="test:counter") as failure:
            await session.step("inc")
        assert failure.value.kind == "env_unreachable"
        assert transport.calls == [1, 1, 1, 1]

    with_worker(talk)


def test_steps_that_wait_at_one_moment_travel_in_one_call():
    async def talk(client, transport, ledger):
        sessions = await asyncio.gather(*(client.create(TASK) for _ in range(32)))
        transport.calls.clear()
        await asyncio.gather(*(session.step("inc") for session in sessions))
        assert transport.calls[0] == 32  # then, perhaps, a call for those that took longer
        ledger.gate.clear()
        slow = asyncio.create_task(sessions[0].step("wait"))
        for _ in range(2):  # none waits for the slow one, neither now nor in its next step
            await asyncio.gather(*(session.step("inc") for session in sessions[1:]))
        assert not slow.done()
        ledger.gate.set()
        await slow

    with_worker(talk)


def test_a_reset_that_keeps_failing_is_tried_three_times_with_two_retries():  # FT09
    async def talk(client, transport, ledger):
        ledger.failing_resets = 100
        with pytest.raises(InfrastructureError, match="no luck at reset") as failure:
            await client.create(TASK)
        assert failure.value.kind == "env_error"
        assert ledger.failing_resets == 97
        ledger.failing_resets = 2
        session = await client.create(TASK)
        assert session.first.messages[0].content == "TASK train 0 0"

    with_worker(talk)


def test_a_local_reset_is_bounded_too():  # FT09
    ledger = Ledger()

    async def run():
        client = LocalClient(partial(CounterEnv, ledger), retries=TWO_RETRIES)
        ledger.failing_resets = 100
        with pytest.raises(InfrastructureError, match="no luck at reset"):
            await client.create(TASK)
        await client.aclose()

    asyncio.run(run())
    assert (ledger.failing_resets, ledger.made, ledger.closed) == (97, 4, 4)


def test_a_full_service_is_waited_for_within_limits():
    async def run():
        ledger = Ledger()
        transport = WorkerTransport(EnvWorker(EnvHost(partial(CounterEnv, ledger)), max_sessions=1))
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 2:
                await held.close()

        client = RemoteClient(transport, RetryPolicy(full_patience_s=5.0, sleep=sleep))
        held = await client.create(TASK)
        second = await client.create(TASK)
        assert pauses == [1.0, 1.0]
        with pytest.raises(InfrastructureError, match="are taken") as failure:
            await client.create(TASK)
        assert failure.value.kind == "env_full"
        assert pauses[2:] == [1.0] * 5
        await second.close()
        await client.aclose()

    asyncio.run(run())


def test_a_full_worker_sends_its_creates_to_the_others_without_waiting():
    async def run():
        worker = EnvWorker(EnvHost(CounterEnv))
        asked: list[str] = []

        class OneFull(WorkerTransport):
            async def batch(self, requests: Sequence[wire.Request], patience: wire.Patience) -> list[wire.Answer]:
                asked.extend(wire.routing_key(request.session_id) for request in requests)
                if asked[-1] == "full":
                    return [wire.ErrorAnswer.of(EnvFault(FaultCode.FULL, "full", 1.0))]
                return await super().batch(requests, patience)

            async def health(self) -> wire.HealthAnswer:
                workers = [wire.WorkerHealth(worker_id=name, sessions=0, max_sessions=1) for name in ("full", "free")]
                return wire.HealthAnswer(env="counter", workers=workers)

        async def sleep(seconds: float) -> None:
            raise AssertionError("no need to wait")

        client = RemoteClient(OneFull(worker), RetryPolicy(sleep=sleep))
        for _ in range(3):
            await client.create(TASK)
        assert sorted(set(asked)) == ["free", "full"]
        await client.aclose()

    asyncio.run(run())


def test_cancelled_creates_and_steps_leave_no_session():  # EV01
    async def talk(client, transport, ledger):
        creating = asyncio.create_task(client.create(TASK))
        while ledger.made < 2:  # the first told the schema; the second is this session's
            await asyncio.sleep(0)
        creating.cancel()
        for _ in range(2000):
            if not (await transport.health()).workers[0].sessions:
                break
            await asyncio.sleep(0.001)
        assert (await transport.health()).workers[0].sessions == 0
        session = await client.create(TASK)
        stepping = asyncio.create_task(session.step("wait"))
        while not ledger.waiting.acquire(blocking=False):
            await asyncio.sleep(0)
        stepping.cancel()
        await session.close()
        ledger.gate.set()

    with_worker(talk)


def test_a_cancelled_local_step_closes_its_environment_when_it_comes_back():  # EV01
    async def run():
        ledger = Ledger()
        client = LocalClient(partial(CounterEnv, ledger))
        session = await client.create(TASK)
        stepping = asyncio.create_task(session.step("wait"))
        while not ledger.waiting.acquire(blocking=False):
            await asyncio.sleep(0)
        stepping.cancel()
        await session.close()
        ledger.gate.set()
        await client.aclose()
        async with asyncio.timeout(10):
            while ledger.closed < 2:
                await asyncio.sleep(0.001)

    asyncio.run(run())


def test_a_stuck_local_step_is_a_timeout():
    async def run():
        ledger = Ledger()
        client = LocalClient(partial(CounterEnv, ledger), call_timeout_s=0.05)
        session = await client.create(TASK)
        with pytest.raises(InfrastructureError, match=r"more than 0\.05 s") as failure:
            await session.step("wait")
        assert failure.value.kind == "env_timeout"
        ledger.gate.set()
        await client.aclose()

    asyncio.run(run())


STEP = (
    '{"answers": [{"kind": "stepped", "session_id": "SESSION", "step": 1, "result": {"observation": {"messages": []}, '
    '"reward": %s}, "total_reward": 0.5}]}'
)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (httpx.Response(500, text="{}"), "env_error"),
        (httpx.Response(502, text="<html>Bad Gateway</html>"), "env_error"),
        (httpx.Response(200, text="<html>login</html>"), "env_error"),
        (httpx.Response(200, text=""), "env_error"),
        (httpx.Response(200, text='{"reward": null}'), "env_error"),
        (httpx.Response(200, text=STEP % "null"), "env_error"),
        (httpx.Response(200, text=STEP % "NaN"), "env_error"),
        (httpx.Response(200, text=STEP % "1e999"), "env_error"),
        (httpx.Response(200, text=STEP % '"1.0"'), "env_error"),
        (httpx.Response(200, text=STEP % "0.5, 1"), "env_error"),
        (httpx.Response(200, text='{"answers": []}'), "env_error"),
        (httpx.Response(200, text=(STEP % "0.5").replace("SESSION", "another")), "env_error"),
        (httpx.Response(200, text=(STEP % "0.5").replace('"step": 1', '"step": 2')), "env_error"),
        (httpx.Response(204), "env_error"),
        (httpx.Response(302, headers={"location": "http://127.0.0.1:9/"}), "env_error"),
        (httpx.ConnectError("refused"), "env_unreachable"),
        (httpx.ReadTimeout("slow"), "env_unreachable"),
        (httpx.RemoteProtocolError("cut"), "env_unreachable"),
    ],
)
def test_bad_answers_are_infrastructure_errors_and_never_rewards(response, kind):  # EV06
    async def run():
        worker = EnvWorker(EnvHost(CounterEnv))
        service = httpx.ASGITransport(make_http_app(worker))
        broken = False

        async def answer(request: httpx.Request) -> httpx.Response:
            if not broken:
                return await service.handle_async_request(request)
            if isinstance(response, Exception):
                raise response
            headers = {name: value for name, value in response.headers.items() if name != "content-length"}
            body = response.text.replace("SESSION", session.session_id)
            return httpx.Response(response.status_code, headers=headers, text=body)

        transport = HttpTransport("http://env", transport=httpx.MockTransport(answer))
        client = RemoteClient(transport, TWO_RETRIES)
        session = await client.create(TASK)
        broken = True
        with pytest.raises(InfrastructureError, match="http://env") as failure:
            await session.step("inc")
        assert failure.value.kind == kind
        broken = False
        await client.aclose()

    asyncio.run(run())


def test_a_batch_that_is_too_large_is_sent_in_halves(monkeypatch):
    async def run():
        worker = EnvWorker(EnvHost(CounterEnv))
        transport = HttpTransport("http://env", transport=httpx.ASGITransport(make_http_app(worker)))
        client = RemoteClient(transport, TWO_RETRIES)
        sessions = await asyncio.gather(*(client.create(TASK) for _ in range(4)))
        text = "x" * (wire.MAX_BODY_BYTES // 3)
        results = await asyncio.gather(*(session.step(f"echo {text}") for session in sessions))
        assert all(result.observation.messages[0].content == text for result in results)
        with pytest.raises(InfrastructureError, match="the most is"):
            await sessions[0].step("echo " + "x" * wire.MAX_BODY_BYTES)
        assert (await sessions[1].step("inc")).reward == 0.1
        await client.aclose()
        await worker.aclose()

    asyncio.run(run())


def test_the_bad_answers_above_are_bad_for_one_reason_each():
    answers = wire.BatchAnswer.model_validate_json(STEP % "0.5").answers
    assert isinstance(answers[0], wire.StepAnswer)
    assert answers[0].result.reward == 0.5


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # what a closed loop leaves open, nobody can close
def test_an_http_client_may_move_to_another_loop():
    """Over real, kept-alive connections: they belong to the loop that opened them."""
    worker = EnvWorker(EnvHost(CounterEnv))
    body = asyncio.run(worker.schema()).model_dump_json().encode()

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = RemoteClient(HttpTransport(f"http://127.0.0.1:{server.server_port}"), TWO_RETRIES)
        assert [asyncio.run(client.schema()).name for _ in range(3)] == ["counter"] * 3
        server.shutdown()
    del client
    gc.collect()


def lose_everything(transport: WorkerTransport, make: Callable[[], CounterEnv]) -> None:
    """The replica dies; another takes its place and knows no session."""
    transport.worker = EnvWorker(EnvHost(make))


def test_a_lost_session_is_rebuilt_by_replay():
    async def run():
        transport = WorkerTransport(EnvWorker(EnvHost(CounterEnv)))
        client = ReplayingClient(RemoteClient(transport, TWO_RETRIES))
        session = await client.create(Task("counter", "train", 4, 2))
        first_id = session.session_id
        await session.step("inc")
        await session.step("set x=7")
        lose_everything(transport, CounterEnv)
        assert (await session.step("inc")).observation.messages[0].content == "2"
        assert session.session_id != first_id
        assert session.first.messages[0].content == "TASK train 4 2"
        lose_everything(transport, CounterEnv)
        assert (await session.step("get x")).observation.messages[0].content == "7"
        lose_everything(transport, CounterEnv)
        with pytest.raises(InfrastructureError) as failure:  # two rebuilds are the most
            await session.step("inc")
        assert failure.value.kind == "session_lost"
        await client.aclose()

    asyncio.run(run())


@pytest.mark.parametrize(("noise", "at"), [([0, 5], 0), ([0, 0, 0, 5], 1)])
def test_a_rebuild_that_differs_makes_the_episode_invalid(noise, at):
    async def run():
        values = iter(noise)
        make = partial(CounterEnv, noise=lambda: next(values))
        transport = WorkerTransport(EnvWorker(EnvHost(make)))
        client = ReplayingClient(RemoteClient(transport, TWO_RETRIES))
        session = await client.create(TASK)
        if at:
            await session.step("inc")
        lose_everything(transport, make)
        with pytest.raises(InfrastructureError, match=f"differs at step {at}") as failure:
            await session.step("inc")
        assert failure.value.kind == "session_lost"
        assert str(pickle.loads(pickle.dumps(failure.value))) == str(failure.value)
        await client.aclose()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"backend": "sever"}, "backend"),
        ({"num_replica": 2}, "Did you mean 'num_replicas'"),
        ({"backend": "url"}, "needs the key 'url'"),
        ({"backend": "local", "url": "http://x"}, "leave one of them out"),
        ({"url": "http://x", "args": {"size": 4}}, "who runs the service"),
        ({"ttl_s": 0}, "ttl_s"),
        ({"backend": "local", "app": "x"}, "Serve application"),
    ],
)
def test_settings_that_cannot_work(spec, message):
    with pytest.raises(InputError, match=message):
        parse_settings(EnvSettings, spec, "env_config")


def test_the_url_chooses_its_backend():
    assert parse_settings(EnvSettings, {"url": "http://x"}, "env_config").backend == "url"
    assert parse_settings(EnvSettings, {}, "env_config").backend == "serve"


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("frozenlak", {"backend": "local"}, "Did you mean 'frozenlake'"),
        ("frozenlake", {"backend": "local", "args": {"sise": 4}}, "Did you mean 'size'"),
        ("frozenlake", {"args": {"sise": 4}}, "Did you mean 'size'"),
        ("frozenlake", {"backend": "local", "split": "trian"}, "Did you mean 'train'"),
        ("frozenlake", {"url": "sandbox_url"}, "sandbox_url"),
        ("frozenlake", {"url": "ftp://x/y"}, "http"),
    ],
)
def test_a_start_that_cannot_work_is_stopped(name, spec, message):  # EV07
    with pytest.raises(InputError, match=message):
        check_env_config(name, spec)


def test_an_unreachable_url_stops_the_start_with_the_url():  # EV07
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/frozenlake"
        with pytest.raises(InputError, match=url):
            check_env_config("frozenlake", {"url": url, "max_retries": 0})


def test_a_good_start_tells_the_schema():
    assert check_env_config("frozenlake", {}).splits["test"] == 100
    assert check_env_config("frozenlake", {"backend": "local", "args": {"test": 7}}).splits["test"] == 7


def test_serve_without_an_application_says_what_to_do():
    with pytest.raises(InputError, match="not deployed"):
        make_client("frozenlake", {})


def test_backoff_doubles():
    async def run():
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)

        policy = RetryPolicy(backoff_s=1.0, sleep=sleep)
        for attempt in (1, 2, 3):
            await policy.pause(attempt)
        assert all(base <= pause <= 1.5 * base for base, pause in zip((1, 2, 4), pauses, strict=True))

    asyncio.run(run())


def test_a_bug_in_the_transport_reaches_every_waiting_caller():
    async def run():
        transport = WorkerTransport(EnvWorker(EnvHost(CounterEnv)))
        client = RemoteClient(transport, TWO_RETRIES)
        sessions = [await client.create(TASK) for _ in range(3)]

        transport.bug = ZeroDivisionError("a bug")
        steps = [session.step("inc") for session in sessions]
        outcomes = await asyncio.gather(*steps, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ZeroDivisionError] * 3
        transport.bug = None
        assert (await sessions[0].step("inc")).reward == 0.1
        await client.aclose()

    asyncio.run(run())


def test_figures_of_a_service_never_stop_a_run():
    assert service_figures(EnvSettings(backend="local")) == {}
    assert service_figures(EnvSettings(url="http://127.0.0.1:9", backend="url")) == {}
