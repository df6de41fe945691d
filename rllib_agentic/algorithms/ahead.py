"""Rollouts that do not wait for the learner: groups are dealt ahead, and trained within a bound on their age."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rllib_agentic.algorithms.dispatch import Dispatcher
from rllib_agentic.errors import TooManyFailuresError
from rllib_agentic.rollout.env_runner import AgenticEnvRunner, RolloutJob, RolloutReport
from rllib_agentic.rollout.episode import EpisodePlan
from rllib_agentic.rollout.limits import RolloutSettings
from rllib_agentic.trajectory.trajectory import Trajectory

logger = logging.getLogger(__name__)

Plans = tuple[EpisodePlan, ...]
_WAIT_S = 0.1  # how long a runner with nothing to hand over keeps a call open, and the driver with it


class LandedGroup(NamedTuple):
    """One group that was played to its end."""

    plans: Plans
    trajectories: list[Trajectory]


@dataclass(slots=True)
class _Group:
    """A group that was dealt and not taken yet."""

    plans: Plans
    runner: int | None = None  # None: nobody plays it yet, or its runner died
    lost: int = 0
    found: dict[int, Trajectory] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return len(self.found) == len(self.plans)

    def staleness(self, version: int) -> int:
        """How many versions older than ``version`` the oldest sampled token is."""
        oldest = [t.oldest_version for t in self.found.values() if t.invalid is None]
        return version - min((v for v in oldest if v is not None), default=version)


class RolloutsAhead:
    """Keeps groups in flight on the runners while the learner works.

    At the start of an iteration ``max_staleness + 1`` iterations' worth of groups are out: in flight, or landed and
    not taken. The iteration takes the first dealt of those that have landed, so no straggler holds it up, and while it
    trains them the others go on. A group that lands late is taken by a later iteration, as long as its oldest token is
    at most ``max_staleness`` versions older than the policy that is trained then; after that it is dropped, counted,
    and another one dealt. The n-th group of a run has the task and the sampling seeds that belong to n, whenever it is
    dealt.

    Args:
        dispatcher: knows runners, environments and the published weights.
        max_losses: how often one group may be lost with its runner before the run stops.
    """

    def __init__(self, dispatcher: Dispatcher, max_losses: int = 3) -> None:
        self._dispatcher = dispatcher
        self._max_losses = max_losses
        self._groups: dict[str, _Group] = {}
        self._dealt = 0
        self._taken_now = 0
        self._counts: dict[str, float] = {}

    def take(
        self, number: int, plan: Callable[[int], Sequence[EpisodePlan]], rollout: RolloutSettings, *, first: bool
    ) -> tuple[list[LandedGroup], dict[str, float]]:
        """Wait for ``number`` groups that are fresh enough, and keep the runners busy meanwhile.

        Args:
            number: how many.
            plan: makes the n-th group of the run; called once a number, in order.
            rollout: settings of this iteration.
            first: whether an iteration begins with this call (it may take more later, to fill its batch).

        Returns:
            The groups in the order they were dealt, and the runners' engine counters since the last call.

        Raises:
            InputError, RunnerError: what a runner met in bad input, or in a bug.
            TooManyFailuresError: no runner is left, or one group was lost too often.
        """
        if first:
            self._taken_now, self._counts = 0, dict.fromkeys(("dropped_groups", "lost_groups"), 0.0)
        engine: dict[str, float] = {}
        while True:
            self._drop_stale(rollout.max_staleness)
            self._deal(number, plan, rollout)
            ready = [group for group in self._groups.values() if group.complete]
            if len(ready) >= number:
                break
            for name, value in self._land(rollout).items():
                engine[name] = engine.get(name, 0.0) + value
        taken = ready[:number]
        for group in taken:
            del self._groups[group.plans[0].group_id]
        self._taken_now += number
        self._count(taken)
        return [LandedGroup(g.plans, [g.found[plan.member] for plan in g.plans]) for g in taken], engine

    def weights_published(self, rollout: RolloutSettings) -> None:
        """Bring the newest weights to the runners that have groups in flight."""
        if self._groups:
            self._launch({runner: () for runner in self._runners_at_work()}, rollout)

    def metrics(self) -> dict[str, float]:
        """Numbers about this iteration: ages of what it took, what was dropped or lost, what is out now."""
        landed = sum(group.complete for group in self._groups.values())
        return self._counts | {"groups_landed": float(landed), "groups_in_flight": float(len(self._groups) - landed)}

    def recall(self) -> None:
        """Throw away everything that was played and not taken; the same groups are dealt again."""
        self._call(dict.fromkeys(self._runners_at_work(), _recall))
        for group in self._groups.values():
            group.runner, group.found = None, {}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: which groups were dealt and not taken. What they have played is not kept."""
        return {"dealt": self._dealt, "out": [group.plans for group in self._groups.values()]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint: the groups that were out are dealt again and played from their beginning."""
        self.recall()
        self._dealt = int(state["dealt"])
        self._groups = {plans[0].group_id: _Group(tuple(plans)) for plans in state["out"]}

    # --- dealing ------------------------------------------------------------------------------------------------

    def _deal(self, number: int, plan: Callable[[int], Sequence[EpisodePlan]], rollout: RolloutSettings) -> None:
        allowed = (rollout.max_staleness + 1) * rollout.groups_per_iteration - self._taken_now
        while len(self._groups) < max(allowed, number):
            plans = tuple(plan(self._dealt))
            self._groups[plans[0].group_id] = _Group(plans)
            self._dealt += 1
        idle = [group for group in self._groups.values() if group.runner is None and not group.complete]
        if not idle:
            return
        loads = dict.fromkeys(self._dispatcher.runners_alive(), 0)
        for group in self._groups.values():
            if group.runner in loads and not group.complete:
                loads[group.runner] += len(group.plans)
        shares: dict[int, list[EpisodePlan]] = {}
        for group in idle:
            group.runner = min(loads, key=loads.__getitem__)
            loads[group.runner] += len(group.plans)
            shares.setdefault(group.runner, []).extend(group.plans)
        self._launch({runner: tuple(plans) for runner, plans in shares.items()}, rollout)

    def _launch(self, shares: Mapping[int, Plans], rollout: RolloutSettings) -> None:
        jobs = {runner: self._dispatcher.job(plans, rollout) for runner, plans in shares.items()}
        reports = self._call({runner: functools.partial(_launch, job=job) for runner, job in jobs.items()})
        for report in reports.values():
            self._dispatcher.take_in(report)
        self._lose(set(shares) - set(reports))

    def _land(self, rollout: RolloutSettings) -> dict[str, float]:
        """Take over what has landed; deal again what was lost with its runner."""
        at_work = self._runners_at_work()
        reports = self._call(dict.fromkeys(at_work, functools.partial(_landed, wait_s=_WAIT_S)))
        engine: dict[str, float] = {}
        for runner, report in reports.items():
            self._dispatcher.take_in(report)
            for name, value in report.engine_metrics.items():
                engine[name] = engine.get(name, 0.0) + value
            for trajectory in report.trajectories:
                if (group := self._groups.get(trajectory.group_id)) is not None:
                    group.found[trajectory.member] = trajectory
            # A runner that was restarted knows nothing of the groups that its predecessor played.
            forgotten = [
                group
                for group_id, group in self._groups.items()
                if group.runner == runner and not group.complete and group_id not in report.in_flight
            ]
            self._mark_lost(forgotten)
        self._lose(at_work - set(reports))
        return engine

    def _runners_at_work(self) -> set[int]:
        return {g.runner for g in self._groups.values() if g.runner is not None and not g.complete}

    def _call(self, calls: Mapping[int, Callable[[AgenticEnvRunner], Any]]) -> dict[int, Any]:
        return self._dispatcher.on_runners(calls)

    # --- age and loss -------------------------------------------------------------------------------------------

    def _drop_stale(self, max_staleness: int) -> None:
        version = self._dispatcher.policy_version
        stale = [i for i, g in self._groups.items() if g.complete and g.staleness(version) > max_staleness]
        for group_id in stale:
            del self._groups[group_id]
        self._counts["dropped_groups"] += len(stale)

    def _lose(self, runners: set[int]) -> None:
        self._mark_lost([g for g in self._groups.values() if g.runner in runners and not g.complete])

    def _mark_lost(self, groups: Sequence[_Group]) -> None:
        if not groups:
            return
        logger.warning("%d groups were lost with their runner; they are dealt again", len(groups))
        self._counts["lost_groups"] = self._counts.get("lost_groups", 0.0) + len(groups)
        for group in groups:
            group.runner, group.found, group.lost = None, {}, group.lost + 1
            if group.lost >= self._max_losses:
                raise TooManyFailuresError(
                    f"group {group.plans[0].group_id} was lost {group.lost} times because env runners died; their logs "
                    "(ray logs, or /tmp/ray/session_latest/logs) name the cause, most often memory"
                )

    def _count(self, taken: Sequence[_Group]) -> None:
        version = self._dispatcher.policy_version
        ages = [group.staleness(version) for group in taken]
        self._counts["staleness_mean"] = sum(ages) / max(len(ages), 1)
        self._counts["staleness_max"] = max([*ages, self._counts.get("staleness_max", 0)])


def _launch(runner: AgenticEnvRunner, job: RolloutJob) -> RolloutReport:
    return runner.launch(job)


def _landed(runner: AgenticEnvRunner, wait_s: float) -> RolloutReport:
    return runner.landed(wait_s)


def _recall(runner: AgenticEnvRunner) -> RolloutReport:
    return runner.recall()
