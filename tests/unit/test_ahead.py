"""Groups dealt ahead of the learner.

1. Never more is out than the bound allows, so without stragglers nothing gets older than it.
2. What is older than the bound is dropped and counted, never trained.
3. The n-th group of a run is the same whenever it is dealt, lost, or dealt again after a restore.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from runner_fleet import Fleet, Runner, plan, trajectory

from rllib_agentic.algorithms.ahead import RolloutsAhead
from rllib_agentic.errors import TooManyFailuresError
from rllib_agentic.rollout.episode import EpisodePlan, Rollout
from rllib_agentic.rollout.in_flight import GroupsInFlight
from rllib_agentic.rollout.limits import RolloutSettings
from rllib_agentic.trajectory import Trajectory


def settings(max_staleness: int = 1) -> RolloutSettings:
    return RolloutSettings(group_size=2, groups_per_iteration=3, max_staleness=max_staleness)


def taken(ahead: RolloutsAhead, number: int = 3, *, first: bool = True, max_staleness: int = 1) -> list[int]:
    groups, _ = ahead.take(number, plan, settings(max_staleness), first=first)
    assert all([t.member for t in g.trajectories] == [0, 1] for g in groups)
    assert all(g.plans[0].group_id == t.group_id for g in groups for t in g.trajectories)
    return [int(g.plans[0].group_id[1:]) for g in groups]


def train(ahead: RolloutsAhead, fleet: Fleet) -> None:
    fleet.policy_version += 1
    ahead.weights_published(settings())


@pytest.mark.parametrize("max_staleness", [1, 2])
def test_the_bound_holds_without_dropping_anything_and_runners_have_work_while_the_learner_does(max_staleness):
    fleet = Fleet(2)
    ahead = RolloutsAhead(fleet)  # type: ignore[arg-type]
    oldest = []
    for iteration in range(6):
        assert taken(ahead, max_staleness=max_staleness) == [3 * iteration + i for i in range(3)]
        metrics = ahead.metrics()
        assert metrics["groups_landed"] + metrics["groups_in_flight"] == 3 * max_staleness
        oldest.append(metrics["staleness_max"])
        assert metrics["dropped_groups"] == 0
        train(ahead, fleet)
    assert oldest == [min(i, max_staleness) for i in range(6)]


def test_stragglers_hold_nobody_up_and_are_used_late_or_dropped():  # WS07
    fleet = Fleet()
    ahead = RolloutsAhead(fleet)  # type: ignore[arg-type]
    slow = {"g1", "g2"}
    fleet.lands = lambda group_id: group_id not in slow
    assert taken(ahead) == [0, 3, 4]
    train(ahead, fleet)
    slow.discard("g1")
    assert taken(ahead) == [1, 5, 6]  # one version late is within the bound
    assert ahead.metrics()["staleness_max"] == 1
    train(ahead, fleet)
    slow.clear()
    assert taken(ahead) == [7, 8, 9]
    assert ahead.metrics()["dropped_groups"] == 1  # g2: its oldest token is two versions old
    assert ahead.metrics()["staleness_max"] == 1


def test_an_iteration_that_needs_more_takes_more():
    fleet = Fleet()
    ahead = RolloutsAhead(fleet)  # type: ignore[arg-type]
    assert taken(ahead) == [0, 1, 2]
    assert taken(ahead, 2, first=False) == [3, 4]
    assert taken(ahead, 4, first=False) == [5, 6, 7, 8]
    assert ahead.metrics()["groups_landed"] == ahead.metrics()["groups_in_flight"] == 0
    train(ahead, fleet)
    assert taken(ahead) == [9, 10, 11]
    assert ahead.metrics()["staleness_max"] == 0


def test_groups_of_a_dead_runner_are_dealt_again_and_a_restarted_one_is_noticed():
    fleet = Fleet(2)
    ahead = RolloutsAhead(fleet)  # type: ignore[arg-type]
    fleet.lands = lambda group_id: False

    launched = fleet.on_runners

    def dying(calls: Mapping[int, Any]) -> dict[int, Any]:
        answers = launched(calls)
        fleet.dead.add(1)
        fleet.lands = lambda group_id: True
        return answers

    fleet.on_runners = dying  # type: ignore[method-assign]
    assert taken(ahead) == [1, 3, 5]
    assert ahead.metrics()["lost_groups"] == 3  # of six, three were on each runner
    fleet.on_runners = launched  # type: ignore[method-assign]
    fleet.runners = {2: Runner()}  # restarted: it knows nothing of 0, 2 and 4, which its predecessor played
    train(ahead, fleet)
    assert taken(ahead) == [6, 7, 8]
    assert ahead.metrics()["lost_groups"] == 3
    train(ahead, fleet)
    assert taken(ahead) == [0, 2, 4]
    assert ahead.metrics()["staleness_max"] == 1


def test_a_group_that_kills_its_runners_stops_the_run():
    fleet = Fleet()
    ahead = RolloutsAhead(fleet, max_losses=2)  # type: ignore[arg-type]
    fleet.lands = lambda group_id: False
    launched = fleet.on_runners

    def forgetful(calls: Mapping[int, Any]) -> dict[int, Any]:
        answers = launched(calls)
        fleet.runners[1].flying.clear()
        return answers

    fleet.on_runners = forgetful  # type: ignore[method-assign]
    with pytest.raises(TooManyFailuresError, match="lost 2 times because env runners died"):
        taken(ahead)


def test_a_restored_run_plays_again_what_was_out_and_goes_on_counting():
    fleet = Fleet()
    ahead = RolloutsAhead(fleet)  # type: ignore[arg-type]
    taken(ahead)
    train(ahead, fleet)
    state = ahead.state()
    assert [int(plans[0].group_id[1:]) for plans in state["out"]] == [3, 4, 5]
    assert taken(ahead) == [3, 4, 5]
    ahead.set_state(state)  # in place, as after an alarm
    assert fleet.out() == set()
    assert taken(ahead) == [3, 4, 5]
    assert [p.seed for p in plan(3)] == [p.seed for p in state["out"][0]]
    later = RolloutsAhead(fresh := Fleet())  # type: ignore[arg-type]
    fresh.policy_version = 7
    later.set_state(state)
    assert taken(later) == [3, 4, 5]
    assert taken(later) == [6, 7, 8]


# Groups in flight, in the runner


class FakeRollout(Rollout):
    """Episodes that end when the test lets them."""

    gates: dict[tuple[str, int], asyncio.Event]
    closed: list[str]

    def __init__(self, most: int = 100) -> None:
        object.__setattr__(self, "settings", RolloutSettings(max_concurrent_episodes=most))
        object.__setattr__(self, "gates", {})
        object.__setattr__(self, "closed", [])

    def gate(self, group_id: str, member: int) -> asyncio.Event:
        return self.gates.setdefault((group_id, member), asyncio.Event())

    async def run(self, plan: EpisodePlan) -> Trajectory:
        try:
            await self.gate(plan.group_id, plan.member).wait()
        finally:
            self.closed.append(f"{plan.group_id}/{plan.member}")
        return trajectory(plan, [0])


def test_groups_are_handed_over_whole_and_once():
    async def run():
        rollout, flying = FakeRollout(), GroupsInFlight()
        flying.launch(rollout, plan(0) + plan(1))
        flying.launch(rollout, plan(1))  # it is in flight already
        rollout.gate("g1", 0).set()
        assert await flying.landed(0.01) == []
        rollout.gate("g1", 1).set()
        landed = await flying.landed(60)
        assert [(t.group_id, t.member) for t in landed] == [("g1", 0), ("g1", 1)]
        assert flying.group_ids == ("g0",) and await flying.landed(0.01) == []
        await flying.recall()
        assert flying.group_ids == () and {"g0/0", "g0/1"} <= set(rollout.closed)

    asyncio.run(run())


def test_groups_share_the_places_of_a_runner():
    async def run():
        rollout, flying = FakeRollout(most=3), GroupsInFlight()
        flying.launch(rollout, plan(0))
        flying.launch(rollout, plan(1))
        await flying.landed(0.01)
        assert len(rollout.gates) == 3
        rollout.gate("g0", 0).set()
        await flying.landed(0.01)
        assert len(rollout.gates) == 4
        await flying.recall()

    asyncio.run(run())


def test_a_bug_in_an_episode_comes_out_where_groups_are_asked_for():
    class Broken(FakeRollout):
        async def run(self, plan: EpisodePlan) -> Trajectory:
            raise ZeroDivisionError("a bug")

    async def run():
        flying = GroupsInFlight()
        flying.launch(Broken(), plan(0))
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await flying.landed(60)

    asyncio.run(run())
