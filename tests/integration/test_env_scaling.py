"""Replicas come and go while sessions live: which ones end, which sessions move, and that no episode is lost."""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray import serve
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema

from rllib_agentic.envs.local import LocalClient
from rllib_agentic.envs.registry import env_factory
from rllib_agentic.envs.remote import RemoteClient
from rllib_agentic.envs.replay import ReplayingClient
from rllib_agentic.envs.retries import RetryPolicy
from rllib_agentic.envs.serve_transport import ServeTransport
from rllib_agentic.envs.session import EnvClient, EnvSession
from rllib_agentic.envs.trace import record_reset, record_step
from rllib_agentic.envs.wire import routing_key
from rllib_agentic.errors import InfrastructureError
from rllib_agentic.trajectory.trajectory import Task
from serve_envs.app import start_serve
from serve_envs.builder import ServeArguments

pytestmark = pytest.mark.ray

APP = "scaled"
ARGS = {"depths": [4], "max_steps": 5000}  # long episodes, which chance does not solve
RETRIES = RetryPolicy(max_retries=6, backoff_s=0.05)
SESSIONS = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=4, object_store_memory=100_000_000, include_dashboard=False, log_to_driver=False)
    try:
        start_serve(None)
        yield
        serve.shutdown()  # also the routers of this process, which report the load of autoscaled replicas
    finally:
        ray.shutdown()


def config(scale: dict[str, Any], **args: Any) -> ServeDeploySchema:
    """What ``serve deploy`` sends."""
    application = {
        "name": APP,
        "route_prefix": f"/{APP}",
        "import_path": "serve_envs.builder:app",
        "args": {"env": "textcraft", "args": ARGS, "cpus_per_replica": 0, **args},
        "deployments": [{"name": "EnvReplica", **scale}],
    }
    return ServeDeploySchema.model_validate({"proxy_location": "Disabled", "applications": [application]})


async def workers() -> dict[str, int]:
    """Their ids, and how many sessions each has."""
    transport = ServeTransport.to_app(APP)
    health = await transport.health()
    await transport.aclose()
    return {worker.worker_id: worker.sessions for worker in health.workers}


async def until(condition: Callable[[set[str]], bool]) -> set[str]:
    """The workers, once they are as they should be."""
    async with asyncio.timeout(90):
        while not condition(now := set(await workers())):
            await asyncio.sleep(0.1)
    return now


async def deploy(given: ServeDeploySchema, condition: Callable[[set[str]], bool]) -> set[str]:
    await asyncio.to_thread(_get_global_client().deploy_apps, given)
    async with asyncio.timeout(90):
        while (await asyncio.to_thread(serve.status)).applications[APP].status != "RUNNING":
            await asyncio.sleep(0.1)
    return await until(condition)


class Episode:
    """One session beside the same episode in this process: they must never differ."""

    def __init__(self, number: int) -> None:
        self.task = Task("textcraft", "train", number % 8, number)
        self.draw = random.Random(number)
        self.session: EnvSession
        self.twin: EnvSession

    async def begin(self, client: EnvClient, here: EnvClient) -> None:
        self.session, self.twin = await client.create(self.task), await here.create(self.task)
        assert record_reset(self.session.first) == record_reset(self.twin.first)
        self.actions = self.session.first.actions

    async def step(self) -> None:
        assert self.actions
        action = self.draw.choice(self.actions)
        result, expected = await self.session.step(action), await self.twin.step(action)
        assert record_step(result) == record_step(expected)
        self.actions = result.observation.actions

    @property
    def home(self) -> str:
        return routing_key(self.session.session_id)


async def begin(client: EnvClient) -> list[Episode]:
    here = LocalClient(env_factory("textcraft", **ARGS))
    episodes = [Episode(number) for number in range(SESSIONS)]
    await asyncio.gather(*(one.begin(client, here) for one in episodes))
    return episodes


async def step(episodes: list[Episode]) -> None:
    await asyncio.gather(*(one.step() for one in episodes))


@pytest.mark.parametrize("direct", [True, False])
def test_live_sessions_while_replicas_join_and_leave_and_are_replaced(
    cluster, direct
):  # FT06: from 2 to 3, 20 sessions
    async def run() -> None:
        two = await deploy(config({"num_replicas": 2}), lambda found: len(found) == 2)
        client = ReplayingClient(RemoteClient(ServeTransport.to_app(APP, direct), RETRIES))
        episodes = await begin(client)
        await step(episodes)
        homes = [one.home for one in episodes]
        assert set(homes) == two

        # one more: nobody restarts, nobody moves; steps go on meanwhile
        growing = asyncio.create_task(deploy(config({"num_replicas": 3}), lambda found: len(found) == 3))
        while not growing.done():
            await step(episodes[::2])
            await asyncio.sleep(0.3)
        three = await growing
        assert two < three
        await step(episodes)
        assert [one.home for one in episodes] == homes

        # two fewer: the newest go; their sessions are rebuilt, the others stay
        shrinking = asyncio.create_task(deploy(config({"num_replicas": 1}), lambda found: len(found) == 1))
        while not shrinking.done():
            await step(episodes[::2])
            await asyncio.sleep(0.3)
        (one_left,) = await shrinking
        assert one_left in two
        await step(episodes)
        assert await workers() == {one_left: SESSIONS}
        assert all(one.home == home for one, home in zip(episodes, homes, strict=True) if home == one_left)

        # changed arguments replace every replica: all sessions are rebuilt, and go on
        await deploy(config({"num_replicas": 1}, ttl_s=500.0), lambda found: len(found) == 1 and one_left not in found)
        await step(episodes)
        assert list((await workers()).values()) == [SESSIONS]
        await client.aclose()

    asyncio.run(run())


def test_without_replay_a_session_whose_replica_left_is_lost_and_says_so(cluster):  # FT06: lost ones are typed
    async def run() -> None:
        two = await deploy(config({"num_replicas": 2}), lambda found: len(found) == 2)
        client = RemoteClient(ServeTransport.to_app(APP), RETRIES)
        episodes = await begin(client)
        await step(episodes)
        (left,) = await deploy(config({"num_replicas": 1}), lambda found: len(found) == 1)
        assert left in two
        outcomes = await asyncio.gather(*(one.step() for one in episodes), return_exceptions=True)
        for one, outcome in zip(episodes, outcomes, strict=True):
            if one.home == left:
                assert outcome is None
            else:
                assert isinstance(outcome, InfrastructureError)
                assert outcome.kind == "session_lost"
        assert 0 < sum(one.home != left for one in episodes) < SESSIONS
        await client.aclose()

    asyncio.run(run())


def test_replicas_come_and_go_by_the_number_of_sessions(cluster):
    scale = {
        "autoscaling_config": {
            "min_replicas": 1,
            "max_replicas": 2,
            "target_ongoing_requests": SESSIONS // 2,
            "upscale_delay_s": 0.0,
            "downscale_delay_s": 0.5,
            "metrics_interval_s": 0.5,
            "look_back_period_s": 1.0,
            "policy": {"policy_function": "serve_envs.autoscaling:by_sessions"},
        }
    }

    async def run() -> None:
        await deploy(config(scale, max_sessions=100), lambda found: len(found) == 1)
        client = ReplayingClient(RemoteClient(ServeTransport.to_app(APP), RETRIES))
        episodes = await begin(client)
        await step(episodes)
        await until(lambda found: len(found) == 2)
        await step(episodes)
        for one in episodes[2:]:
            await one.session.close()
        await until(lambda found: len(found) == 1)
        await step(episodes[:2])
        await client.aclose()

    asyncio.run(run())


def test_the_file_of_the_docs_is_one_that_serve_takes():
    text = (Path(__file__).parents[2] / "docs" / "serve_environments.yaml").read_text(encoding="utf-8")
    for application in ServeDeploySchema.model_validate(yaml.safe_load(text)).applications:
        arguments = ServeArguments(**application.args)
        env = env_factory(arguments.env, **arguments.args)()
        assert env.schema().name == application.name
        env.close()
