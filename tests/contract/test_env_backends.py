"""One suite for every backend: whatever hosts an environment, the rollout sees the same thing.

1. A task opens a session that shows it; equal tasks with equal actions give equal episodes on all backends.
2. Rewards, ends, success, metrics and texts arrive exactly.
3. Sessions share nothing.
4. Our mistakes (no such task) are input errors; the environment's are infrastructure errors, of the right kind.
5. A closed or failed session is lost; closing it again is nothing.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator

import counter_env
import pytest
from counter_env import UNLUCKY_SEED, CounterEnv, QuickCounterEnv

from rllib_agentic.envs.env import Observation, StepResult
from rllib_agentic.envs.faults import EnvFault
from rllib_agentic.envs.http_transport import HttpTransport
from rllib_agentic.envs.local import LocalClient
from rllib_agentic.envs.remote import RemoteClient
from rllib_agentic.envs.replay import ReplayingClient
from rllib_agentic.envs.retries import RetryPolicy
from rllib_agentic.envs.session import EnvClient
from rllib_agentic.envs.settings import EnvSettings
from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.trajectory import Task

RETRIES = RetryPolicy(backoff_s=0.001)
BACKENDS = [
    "local",
    "local-quick",
    pytest.param("serve", marks=pytest.mark.ray),
    pytest.param("serve-replaying", marks=pytest.mark.ray),
    pytest.param("serve-through-serve", marks=pytest.mark.ray),
    pytest.param("url", marks=pytest.mark.ray),
    pytest.param("url-through-serve", marks=pytest.mark.ray),
]


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[str, str]]:
    """A deployed counter: its application's name and its URL."""
    import ray

    from serve_envs.app import deploy_app, undeploy

    ray.init(address="local", num_cpus=2, object_store_memory=100_000_000, include_dashboard=False, log_to_driver=False)
    try:
        ray.cloudpickle.register_pickle_by_value(counter_env)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        app = deploy_app(CounterEnv, EnvSettings(num_replicas=2), "counter", http_port=port)
        yield app, f"http://127.0.0.1:{port}/{app}"
        undeploy(app)
    finally:
        ray.cloudpickle.unregister_pickle_by_value(counter_env)
        ray.shutdown()


@pytest.fixture(params=BACKENDS)
def make_client(request: pytest.FixtureRequest) -> Callable[[], EnvClient]:
    if request.param == "local":
        return lambda: LocalClient(CounterEnv, retries=RETRIES)
    if request.param == "local-quick":
        return lambda: LocalClient(QuickCounterEnv, retries=RETRIES)
    app, url = request.getfixturevalue("service")
    direct = not request.param.endswith("through-serve")
    if request.param.startswith("url"):
        return lambda: RemoteClient(HttpTransport(url, direct=direct), RETRIES)
    from rllib_agentic.envs.serve_transport import ServeTransport

    if request.param != "serve-replaying":
        return lambda: RemoteClient(ServeTransport.to_app(app, direct), RETRIES)
    return lambda: ReplayingClient(RemoteClient(ServeTransport.to_app(app), RETRIES))


def with_client(make_client: Callable[[], EnvClient], talk: Callable[[EnvClient], Awaitable[None]]) -> None:
    async def run() -> None:
        client = make_client()
        try:
            await talk(client)
        finally:
            await client.aclose()

    asyncio.run(run())


def task(index: int = 0, seed: int = 0, split: str = "train") -> Task:
    return Task("counter", split, index, seed)


def said(text: str, count: int) -> Observation:
    return Observation((Message("user", text),), ("inc", "end"), str(count), {"n": [count]})


def test_an_episode_is_the_same_everywhere(make_client):
    async def talk(client):
        schema = await client.schema()
        assert (schema.name, schema.splits, schema.reward_range) == ("counter", {"train": 10, "test": 5}, (0.0, 10.0))
        session = await client.create(task(3, 41, "test"))
        assert session.first == said("TASK test 3 41", 0)
        assert await session.step("inc") == StepResult(
            said("1", 1), reward=0.1, rewards={"work": 0.1}, metrics={"count": 1}
        )
        assert await session.step("end") == StepResult(
            said("end", 1), reward=1.0, terminated=True, success=True, rewards={"work": 1.0}, metrics={"count": 1}
        )
        with pytest.raises(EnvFault, match="episode"):
            await session.step("inc")
        await session.close()

    with_client(make_client, talk)


def test_a_limit_of_the_environment_truncates(make_client):
    async def talk(client):
        session = await client.create(task())
        result = await session.step("cut")
        assert (result.terminated, result.truncated, result.success) == (False, True, False)
        with pytest.raises(EnvFault, match="episode"):
            await session.step("inc")

    with_client(make_client, talk)


def test_many_sessions_at_once_share_nothing(make_client):
    async def episode(client, number):
        session = await client.create(task(number % 10, number))
        assert session.first.messages[0].content == f"TASK train {number % 10} {number}"
        await session.step(f"set x={number}")
        counts = [(await session.step("inc")).observation.messages[0].content for _ in range(number % 5)]
        assert counts == [str(i + 1) for i in range(number % 5)]
        assert (await session.step("get x")).observation.messages[0].content == str(number)
        await session.close()
        return session.session_id

    async def talk(client):
        ids = await asyncio.gather(*(episode(client, number) for number in range(48)))
        assert len(set(ids)) == 48

    with_client(make_client, talk)


@pytest.mark.parametrize("text", ["a\x00b", "\x1b[31mred\x1b[0m", "x" * 2**20, "\u202eabc", "\U0010ffff\ufffe\r\n"])
def test_texts_arrive_exactly(make_client, text):
    async def talk(client):
        session = await client.create(task())
        assert (await session.step(f"echo {text}")).observation.messages[0].content == text

    with_client(make_client, talk)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (task(10), "0 to 9"),
        (task(-1), "0 to 9"),
        (task(5, split="test"), "0 to 4"),
        (task(split="dev"), "train, test"),
        (task(index="3"), "3"),  # type: ignore[arg-type]
        (task(index=2.0), "2.0"),  # type: ignore[arg-type]
    ],
)
def test_a_task_that_is_none_is_an_input_error(make_client, wrong, message):
    async def talk(client):
        with pytest.raises(InputError, match=message):
            await client.create(wrong)

    with_client(make_client, talk)


@pytest.mark.parametrize("action", ["raise", "exit", "nan", "object", "tuple"])
def test_an_environment_that_fails_loses_its_session(make_client, action):
    async def talk(client):
        session = await client.create(task())
        with pytest.raises(InfrastructureError) as failure:
            await session.step(action)
        assert failure.value.kind == "env_error"
        await session.close()
        other = await client.create(task())
        assert (await other.step("inc")).reward == 0.1

    with_client(make_client, talk)


def test_a_reset_that_always_fails_is_tried_a_bounded_number_of_times(make_client):
    async def talk(client):
        with pytest.raises(InfrastructureError, match="never any luck") as failure:
            await client.create(task(seed=UNLUCKY_SEED))
        assert failure.value.kind == "env_error"

    with_client(make_client, talk)


def test_closing_is_final_and_may_be_repeated(make_client):
    async def talk(client):
        session = await client.create(task())
        await session.close()
        await session.close()
        with pytest.raises(InfrastructureError) as failure:
            await session.step("inc")
        assert failure.value.kind == "session_lost"

    with_client(make_client, talk)
