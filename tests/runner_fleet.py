"""Runners that play nothing: groups land when a test says so. What RolloutsAhead asks of a dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rllib_agentic.rollout.env_runner import RolloutJob, RolloutReport
from rllib_agentic.rollout.episode import EpisodePlan
from rllib_agentic.rollout.group import plan_group
from rllib_agentic.rollout.limits import RolloutSettings
from rllib_agentic.trajectory import FinishReason, Task, Trajectory, Turn


def trajectory(plan: EpisodePlan, versions: list[int]) -> Trajectory:
    turns = tuple(
        Turn(
            context_ids=np.array([1], np.int32),
            action_ids=np.array([2], np.int32),
            logprobs=np.array([-1.0], np.float32),
            policy_versions=np.array([version], np.int32),
            finish_reason=FinishReason.STOP,
            segment=0,
            text="",
        )
        for version in versions
    )
    return Trajectory(plan.task, plan.group_id, plan.member, (), turns, True, False, True, "terminated")


class Runner:
    """Plays nothing: groups land when the test says so, in the version that was loaded when they were launched."""

    def __init__(self) -> None:
        self.flying: dict[str, tuple[tuple[EpisodePlan, ...], int]] = {}
        self.landing: list[Trajectory] = []
        self.version = -1

    def launch(self, job: RolloutJob) -> RolloutReport:
        self.version = job.policy_version
        for plan in job.plans:
            plans, version = self.flying.get(plan.group_id, ((), self.version))
            self.flying[plan.group_id] = (*plans, plan), version
        return self.report([])

    def landed(self, wait_s: float) -> RolloutReport:
        landed, self.landing = self.landing, []
        return self.report(landed)

    def recall(self) -> RolloutReport:
        self.flying.clear()
        return self.report([])

    def land(self, group_id: str) -> None:
        plans, version = self.flying.pop(group_id)
        self.landing += [trajectory(plan, [version, self.version]) for plan in plans]

    def report(self, trajectories: list[Trajectory]) -> RolloutReport:
        return RolloutReport(trajectories, self.version, {"sampled_tokens": 1.0}, None, tuple(self.flying))


class Fleet:
    """What RolloutsAhead asks of a dispatcher, over runners that land groups by a rule of the test's."""

    def __init__(self, runners: int = 1) -> None:
        self.runners = {i + 1: Runner() for i in range(runners)}
        self.dead: set[int] = set()
        self.policy_version = 0
        self.seen: list[list[str]] = []
        self.lands: Callable[[str], bool] = lambda group_id: True

    def job(self, plans: tuple[EpisodePlan, ...], rollout: RolloutSettings) -> RolloutJob:
        return RolloutJob(tuple(plans), {}, self.policy_version, None, rollout)

    def runners_alive(self) -> list[int]:
        return [i for i in self.runners if i not in self.dead]

    def on_runners(self, calls: Mapping[int, Callable[[Any], Any]]) -> dict[int, Any]:
        for i in self.runners_alive():
            for group_id in list(self.runners[i].flying):
                if self.lands(group_id):
                    self.runners[i].land(group_id)
        return {i: call(self.runners[i]) for i, call in calls.items() if i not in self.dead}

    def take_in(self, report: RolloutReport) -> None:
        assert report.failure is None

    def out(self) -> set[str]:
        return {group_id for runner in self.runners.values() for group_id in runner.flying}


def plan(number: int) -> list[EpisodePlan]:
    return plan_group(
        Task("bandit", "train", number), group_id=f"g{number}", size=2, run_seed=0, iteration=0, max_turns=2
    )
