"""textworld_express and sciworld on real virtual machines: their task lists, and what happens when a machine dies."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import Any

import psutil
import pytest
from installed import require_env

require_env("textworld_express")
require_env("sciworld")

from rllib_agentic.envs.baselines import expert_policy, play  # noqa: E402
from rllib_agentic.envs.local import LocalClient  # noqa: E402
from rllib_agentic.envs.replay import ReplayingClient  # noqa: E402
from rllib_agentic.errors import InfrastructureError, InputError  # noqa: E402
from rllib_agentic.trajectory.trajectory import Task  # noqa: E402
from serve_envs.jvm_env import machines_of  # noqa: E402
from serve_envs.sciworld.env import SciWorld  # noqa: E402
from serve_envs.sciworld.tasks import VARIATIONS  # noqa: E402
from serve_envs.textworld_express.env import TextWorldExpress  # noqa: E402
from serve_envs.textworld_express.games import FOLDS, GAMES, SEEDS_PER_FOLD  # noqa: E402


def running() -> set[int]:
    """The processes of all virtual machines."""
    pools = (*machines_of(SciWorld.main), *machines_of(TextWorldExpress.main))
    return {pid for pool in pools for pid in pool.process_ids}


@pytest.fixture(scope="module", autouse=True)
def _no_machine_is_left():
    yield
    pids = running()
    SciWorld.release()
    TextWorldExpress.release()
    assert not any(map(psutil.pid_exists, pids))
    assert not any("java" in one.name() for one in psutil.Process().children(recursive=True))


def test_the_seeds_and_parameters_of_textworld_express_are_the_packages() -> None:
    session = TextWorldExpress()._lease()

    def check(engine: Any) -> None:
        assert set(engine.getGameNames()) == set(GAMES)
        for name, levels in GAMES.items():
            for params in levels.values():
                assert engine.load(name, params) == "", (name, params)
            folds = engine.getSeedsTrain(), engine.getSeedsDev(), engine.getSeedsTest()
            for seeds, (_, first) in zip(folds, FOLDS.values(), strict=True):
                assert (seeds[0], len(seeds)) == (first, SEEDS_PER_FOLD)

    session.call(check)
    session.close()


def test_the_variations_of_sciworld_are_the_packages() -> None:
    session = SciWorld()._lease()

    def check(world: Any) -> None:
        assert sorted(world.getTaskNames()) == sorted(VARIATIONS)
        for task in (
            "boil",
            "lifespan-longest-lived",
            "identify-life-stages-1",
            "inclined-plane-friction-named-surfaces",
        ):
            world.load(task, 0, "", False)
            sets = world.getVariationsTrain(), world.getVariationsDev(), world.getVariationsTest()
            first = 0
            for variations, count in zip(sets, VARIATIONS[task], strict=True):
                assert (variations[0], variations[len(variations) - 1], len(variations)) == (
                    first,
                    first + count - 1,
                    count,
                )
                first += count

    session.call(check)
    session.close()


@pytest.mark.parametrize("difficulty", ["medium"])
def test_the_expert_wins_every_game(difficulty: str) -> None:
    env = TextWorldExpress(difficulty=difficulty)  # type: ignore[arg-type]
    lengths = []
    for index in range(2 * len(GAMES)):
        results = play(env, expert_policy, "test", index, 0, 100)
        assert results[-1].success, (difficulty, index)
        assert sum(result.reward for result in results) == pytest.approx(1.0)
        lengths.append(len(results))
    env.close()
    print(difficulty, lengths)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_goods_to_be_sorted_stay_where_many_play_one_task(split: str) -> None:
    envs = [TextWorldExpress(games=("sorting",)) for _ in range(4)]
    for index in (0, 1, 100):  # 0 and 100 have the same goods, in other places
        first = [env.reset(split, index, 0) for env in envs]
        assert first[1:] == first[:-1]
        for env in envs:
            results = [env.step(env.expert_action())]
            while not results[-1].terminated:
                results.append(env.step(env.expert_action()))
            assert results[-1].success
    for env in envs:
        env.close()


def test_a_failed_game_ends_with_nothing_won() -> None:
    env = TextWorldExpress(games=("simonsays",))
    first = env.reset("train", 0, 0)
    told = first.messages[1].content
    wrong = next(action for action in first.actions or () if action not in told)
    result = env.step(wrong)
    assert (result.terminated, result.success) == (True, False)
    with pytest.raises(RuntimeError):
        env.step(wrong)
    env.close()


@pytest.mark.parametrize("make", [partial(TextWorldExpress, games=("coin",)), partial(SciWorld, tasks=("find-plant",))])
def test_a_machine_that_dies_is_replaced_and_the_episode_goes_on(make: Any) -> None:
    async def run() -> None:
        client = ReplayingClient(LocalClient(make))
        task = Task("x", "train", 3, 0)
        one, other = await client.create(task), await client.create(task)
        seen = [await one.step("look around"), await one.step("inventory")]
        before = running()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        assert (await other.step("look around")).observation == seen[0].observation
        assert (await one.step("look around")).observation.messages
        after = running()
        assert after and not after & before
        await client.aclose()

    asyncio.run(run())


def test_without_replay_the_session_is_lost() -> None:
    env = TextWorldExpress(games=("coin",))
    env.reset("train", 0, 0)
    TextWorldExpress.release()
    with pytest.raises(InfrastructureError) as lost:
        env.step("look around")
    assert lost.value.kind == "session_lost"
    env.reset("train", 0, 0)
    assert env.step("inventory").metrics == {"invalid_action": 0.0}
    env.close()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (partial(TextWorldExpress, games=("coins",)), "Did you mean 'coin'"),
        (partial(TextWorldExpress, games=()), "one or more"),
        (partial(SciWorld, tasks=("boyl",)), "Did you mean 'boil'"),
        (partial(SciWorld, simplifications=("openDoor",)), "Did you mean 'openDoors'"),
        (partial(SciWorld, jvms=0), "start at 1"),
    ],
)
def test_arguments_that_cannot_work(make: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()


def test_sciworld_counts_progress_and_a_wrong_focus() -> None:
    env = SciWorld(tasks=("find-plant",), simplifications=("easy",))
    results = play(env, expert_policy, "train", 0, 0, 100)
    assert results[-1].success
    assert sum(result.reward for result in results) == pytest.approx(1.0)
    first = env.reset("train", 0, 0)
    assert first.messages[1].content.startswith(first.info["task_description"])
    assert env.step("fly to the moon").metrics["invalid_action"] == 1.0
    wrong = env.step("focus on air")
    assert (wrong.terminated, wrong.success, wrong.reward) == (True, False, -1.0)
    env.close()
