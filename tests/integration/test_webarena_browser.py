"""webarena_local as the agent meets it: a real browser before a real tracker, judged by its database."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest
from installed import require_env

require_env("webarena_local")

from rllib_agentic.envs.baselines import expert_policy, play  # noqa: E402
from serve_envs.webarena_local.env import WebArenaLocal  # noqa: E402
from serve_envs.webarena_local.expert import next_action  # noqa: E402
from serve_envs.webarena_local.tasks import KINDS, make_splits  # noqa: E402

pytestmark = pytest.mark.slow


def make(kind: str) -> WebArenaLocal:
    return WebArenaLocal(kinds=(kind,), browsers=1)


@pytest.fixture(scope="module", autouse=True)
def _no_browser_is_left() -> Iterator[None]:
    yield
    WebArenaLocal.release()
    assert not any("chrom" in one.name() for one in psutil.Process().children(recursive=True))


@pytest.mark.parametrize("kind", KINDS)
def test_the_expert_does_each_kind_of_task_by_mouse_and_keys(kind: str) -> None:
    env = make(kind)
    results = play(env, expert_policy, "validation", 0, 0, 30)
    assert (results[-1].success, results[-1].reward) == (True, 1.0)
    assert not any(result.metrics["invalid_action"] or result.metrics["failed_action"] for result in results)
    env.close()


def test_work_that_was_not_asked_for_is_seen_in_the_database() -> None:
    env = make("find")
    env.reset("validation", 0, 0)
    answer = env._running().answer
    assert answer is not None
    unasked = next(task for task in make_splits()["validation"] if task.kind == "create")
    while (action := next_action(unasked, env._view)) != "stop":
        env.step(action)
    assert not env.step(f'answer "{answer[0]}"').success  # the answer is right, as the expert's is
    env.close()


def test_trackers_are_apart_and_begin_as_they_were() -> None:
    one, other = make("create"), make("create")
    first = one.reset("validation", 0, 0)
    assert other.reset("validation", 0, 0) == first
    for _ in range(20):
        action = one.expert_action()
        if action == "stop":
            break
        one.step(action)
    assert not other.step("stop").success  # what one did is not in the other's
    assert one.step("stop").success
    assert one.reset("validation", 0, 0) == first
    assert one.step("back").metrics["failed_action"] == 1.0  # nothing of the last episode is behind this page
    for env in (one, other):
        env.close()
