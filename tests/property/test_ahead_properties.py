"""Groups dealt ahead, whatever lands when and whichever runner forgets what it played.

1. What is taken is at most ``max_staleness`` versions old, whole, and nothing is taken twice.
2. At the start of an iteration no more groups are out than the bound allows.
3. Every number that was dealt is taken, dropped and counted, or still out: none is lost.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from runner_fleet import Fleet, plan

from rllib_agentic.algorithms.ahead import RolloutsAhead
from rllib_agentic.rollout.limits import RolloutSettings

GROUPS = 3


@settings(max_examples=60, deadline=None)
@given(data=st.data(), max_staleness=st.integers(1, 3), runners=st.integers(1, 3))
def test_nothing_too_old_is_taken_and_no_group_is_lost(data, max_staleness, runners):
    fleet = Fleet(runners)
    ahead = RolloutsAhead(fleet, max_losses=10**6)  # type: ignore[arg-type]
    rollout = RolloutSettings(group_size=2, groups_per_iteration=GROUPS, max_staleness=max_staleness)
    calls = 0

    def lands(group_id: str) -> bool:
        nonlocal calls
        calls += 1
        return calls % 7 == 0 or data.draw(st.booleans())  # everything lands some time

    fleet.lands = lands
    taken: list[int] = []
    dropped = 0.0
    for _ in range(5):
        for wanted in (GROUPS, *data.draw(st.lists(st.integers(1, 2), max_size=1))):
            first = wanted == GROUPS
            groups, _ = ahead.take(wanted, plan, rollout, first=first)
            assert len(groups) == wanted
            for group in groups:
                assert [t.member for t in group.trajectories] == [p.member for p in group.plans]
                oldest = [t.oldest_version for t in group.trajectories]
                assert all(v is not None and 0 <= fleet.policy_version - v <= max_staleness for v in oldest)
                taken.append(int(group.plans[0].group_id[1:]))
            if first:
                metrics = ahead.metrics()
                assert metrics["groups_landed"] + metrics["groups_in_flight"] <= max_staleness * GROUPS
        dropped += ahead.metrics()["dropped_groups"]
        fleet.policy_version += 1
        if data.draw(st.booleans()):
            for runner in fleet.runners.values():
                runner.flying.clear()  # it was restarted
        ahead.weights_published(rollout)
    assert len(set(taken)) == len(taken)
    state = ahead.state()
    assert len(taken) + dropped + len(state["out"]) == state["dealt"]
