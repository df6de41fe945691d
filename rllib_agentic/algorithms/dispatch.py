"""The driver's side of rollouts: deal plans to runners, and deal again what a dead runner took with it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.rllib.env.env_runner_group import EnvRunnerGroup

from rllib_agentic.algorithms.environment import EnvConnection
from rllib_agentic.errors import AgenticError, InputError, TooManyFailuresError
from rllib_agentic.rollout.env_runner import AgenticEnvRunner, RolloutJob, RolloutReport, split_plans
from rllib_agentic.rollout.episode import EpisodePlan
from rllib_agentic.rollout.limits import RolloutSettings
from rllib_agentic.trajectory.trajectory import Trajectory

logger = logging.getLogger(__name__)


def _sample(runner: AgenticEnvRunner, job: RolloutJob) -> RolloutReport:
    return runner.sample(job)


class RunnerError(AgenticError):
    """A bug in our or the environment's code, seen inside a runner; carries the runner's traceback."""


class Dispatcher:
    """Runs plans on an :class:`EnvRunnerGroup`.

    Weights travel with the job, by reference: a runner that holds another version fetches them, whatever it missed
    before. So a dropped sync cannot go unnoticed, and a restarted runner needs no special care.

    Args:
        runners: RLlib's group; its local runner samples exactly when there are no remote ones.
        connections: environment name to where it is served.
        max_rounds: how often the plans of dead runners are dealt again.
    """

    def __init__(self, runners: EnvRunnerGroup, connections: dict[str, EnvConnection], max_rounds: int = 3) -> None:
        self._runners = runners
        self._connections = connections
        self._max_rounds = max_rounds
        self._version = -1
        self._weights: Any = None
        self._logged: list[Any] = []
        self.lost_runs = 0

    @property
    def policy_version(self) -> int:
        """The version that the next job samples from."""
        return self._version

    def publish(self, policy_version: int, weights: Any) -> None:
        """Make a version the one that every following job samples from."""
        remote = self._runners.num_remote_env_runners() > 0
        self._version, self._weights = policy_version, ray.put(weights) if remote else weights

    def run(self, plans: Sequence[EpisodePlan], rollout: RolloutSettings) -> tuple[list[Trajectory], dict[str, float]]:
        """Play all plans; trajectories come in the order of the plans.

        Raises:
            InputError, RunnerError: what a runner met in bad input, or in a bug.
            TooManyFailuresError: no runner is left, or plans were lost too often.
        """
        versioned = [replace(plan, policy_version=self._version) for plan in plans]
        found: dict[tuple[str, int], Trajectory] = {}
        engine: dict[str, float] = {}
        pending = versioned
        for _ in range(self._max_rounds):
            for report in self._round(pending, rollout):
                self._check(report)
                found.update({(t.group_id, t.member): t for t in report.trajectories})
                if report.logged is not None:
                    self._logged.append(report.logged)
                for name, value in report.engine_metrics.items():
                    engine[name] = engine.get(name, 0.0) + value
            pending = [plan for plan in versioned if (plan.group_id, plan.member) not in found]
            if not pending:
                return [found[plan.group_id, plan.member] for plan in versioned], engine
            self.lost_runs += 1
            logger.warning("%d episodes were lost with their runner; they are dealt again", len(pending))
        raise TooManyFailuresError(
            f"{len(pending)} of {len(versioned)} episodes were lost {self._max_rounds} times because env runners died; "
            "their logs (ray logs, or /tmp/ray/session_latest/logs) name the cause, most often memory"
        )

    def take_logged(self) -> list[Any]:
        """What callbacks on the runners logged since the last call: a reduced logger of RLlib's a job."""
        logged, self._logged = self._logged, []
        return logged

    def _round(self, plans: Sequence[EpisodePlan], rollout: RolloutSettings) -> list[RolloutReport]:
        def job(share: tuple[EpisodePlan, ...]) -> RolloutJob:
            return RolloutJob(share, self._connections, self._version, self._weights, rollout)

        if not self._runners.num_remote_env_runners():
            return [self._runners.local_env_runner.sample(job(tuple(plans)))]
        self._runners.probe_unhealthy_env_runners()
        healthy = self._runners.healthy_env_runner_ids()
        if not healthy:
            raise TooManyFailuresError(
                f"all {self._runners.num_remote_env_runners()} env runners are dead; their logs name the cause, most "
                "often memory: lower rollout.max_concurrent_episodes or give the runners more"
            )
        shares = [(i, share) for i, share in zip(healthy, split_plans(plans, len(healthy)), strict=True) if share]
        return self._runners.foreach_env_runner(
            [functools.partial(_sample, job=job(share)) for _, share in shares],
            remote_worker_ids=[i for i, _ in shares],
            local_env_runner=False,
            timeout_seconds=None,
        )

    @staticmethod
    def _check(report: RolloutReport) -> None:
        if report.input_error is not None:
            raise InputError(report.input_error)
        if report.failure is not None:
            raise RunnerError(f"an env runner met a bug:\n{report.failure}")
