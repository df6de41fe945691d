"""The driver's side of rollouts: deal plans to runners, and deal again what a dead runner took with it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RaySystemError
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.env.env_runner_group import EnvRunnerGroup

from rllib_agentic.algorithms.environment import EnvConnection
from rllib_agentic.algorithms.inference import Inference
from rllib_agentic.algorithms.runner_deaths import RunnerDeaths
from rllib_agentic.errors import AgenticError, InputError, TooManyFailuresError
from rllib_agentic.rollout.env_runner import AgenticEnvRunner, RolloutJob, RolloutReport, split_plans
from rllib_agentic.rollout.episode import EpisodePlan
from rllib_agentic.rollout.limits import RolloutSettings
from rllib_agentic.trajectory.trajectory import Trajectory

logger = logging.getLogger(__name__)


T = TypeVar("T")
_LOCAL = 0


def _sample(runner: AgenticEnvRunner, job: RolloutJob) -> RolloutReport:
    return runner.sample(job)


class RunnerError(AgenticError):
    """A bug in our or the environment's code, seen inside a runner; carries the runner's traceback."""


class Dispatcher:
    """Runs plans on an :class:`EnvRunnerGroup`.

    Weights travel with the job, by reference: a runner that holds another version fetches them, whatever it missed
    before. So a dropped sync cannot go unnoticed, and a restarted runner needs no special care. Where engines live
    outside the runners, they get the weights instead.

    Args:
        runners: RLlib's group; its local runner samples exactly when there are no remote ones.
        connections: environment name to where it is served.
        engines: outside the runners; None where each runner has its own.
        max_rounds: how often the plans of dead runners are dealt again.
    """

    def __init__(
        self,
        runners: EnvRunnerGroup,
        connections: dict[str, EnvConnection],
        engines: Inference | None = None,
        max_rounds: int = 3,
    ) -> None:
        self._runners = runners
        self._connections = connections
        self._engines = engines
        self._max_rounds = max_rounds
        self._version = -1
        self._weights: Any = None
        self._logged: list[Any] = []
        self._deaths = RunnerDeaths()
        self.lost_runs = 0

    @property
    def policy_version(self) -> int:
        """The version that the next job samples from."""
        return self._version

    def publish(self, policy_version: int, weights: Any, *, finish_turns: bool = False) -> None:
        """Make a version the one that every following job samples from.

        Args:
            policy_version: its number.
            weights: the RLModule's state.
            finish_turns: of engines outside the runners: running turns end first.
        """
        if self._engines is not None:
            self._engines.publish(policy_version, weights, finish_turns=finish_turns)
        elif self._runners.num_remote_env_runners() > 0:
            self._weights = ray.put(weights)
        else:
            self._weights = weights
        self._version = policy_version

    def publish_from(self, learners: LearnerGroup, *, finish_turns: bool = False) -> bool:
        """As :meth:`publish`, with weights that go from the learner to the engines, and not by way of the driver.

        Args:
            learners: whose weights these are.
            finish_turns: as above.

        Returns:
            False where that is not possible, or not wished: then nothing was done.
        """
        if self._engines is None or not self._engines.receives_from(learners):
            return False
        self._version = self._engines.publish_from(learners, finish_turns=finish_turns)
        return True

    def rest(self) -> None:
        """Nothing will be sampled before the next :meth:`publish` or :meth:`run`."""
        if self._engines is not None:
            self._engines.sleep()

    def run(self, plans: Sequence[EpisodePlan], rollout: RolloutSettings) -> tuple[list[Trajectory], dict[str, float]]:
        """Play all plans; trajectories come in the order of the plans.

        Raises:
            InputError, RunnerError: what a runner met in bad input, or in a bug.
            TooManyFailuresError: no runner is left, or plans were lost too often.
        """
        if self._engines is not None:
            self._engines.wake()
        versioned = [replace(plan, policy_version=self._version) for plan in plans]
        found: dict[tuple[str, int], Trajectory] = {}
        engine: dict[str, float] = {}
        pending = versioned
        for _ in range(self._max_rounds):
            for report in self._round(pending, rollout):
                self.take_in(report)
                found.update({(t.group_id, t.member): t for t in report.trajectories})
                for name, value in report.engine_metrics.items():
                    engine[name] = engine.get(name, 0.0) + value
            pending = [plan for plan in versioned if (plan.group_id, plan.member) not in found]
            if not pending:
                return [found[plan.group_id, plan.member] for plan in versioned], engine
            self.lost_runs += 1
            logger.warning("%d episodes were lost with their runner; they are dealt again", len(pending))
        raise TooManyFailuresError(
            f"{len(pending)} of {len(versioned)} episodes were lost {self._max_rounds} times because env runners died; "
            f"{self._deaths}"
        )

    def take_logged(self) -> list[Any]:
        """What callbacks on the runners logged since the last call: a reduced logger of RLlib's a job."""
        logged, self._logged = self._logged, []
        return logged

    def job(self, plans: Sequence[EpisodePlan], rollout: RolloutSettings) -> RolloutJob:
        """What asks a runner to play plans from the newest weights."""
        engine = None if self._engines is None else self._engines.address
        return RolloutJob(tuple(plans), self._connections, self._version, self._weights, rollout, engine)

    def runners_alive(self) -> list[int]:
        """Numbers of the runners that can play; dead ones are started again where the config allows it.

        Raises:
            TooManyFailuresError: there is none.
        """
        if not self._runners.num_remote_env_runners():
            return [_LOCAL]
        self._runners.probe_unhealthy_env_runners()
        healthy = self._runners.healthy_env_runner_ids()
        if not healthy:
            raise TooManyFailuresError(
                f"all {self._runners.num_remote_env_runners()} env runners are dead; {self._deaths}"
            )
        return healthy

    def on_runners(self, calls: Mapping[int, Callable[[AgenticEnvRunner], T]]) -> dict[int, T]:
        """Call each of these runners at the same time; a runner that died is not in the answer."""
        if not self._runners.num_remote_env_runners():
            return {runner: call(self._runners.local_env_runner) for runner, call in calls.items()}
        if not calls:
            return {}
        # What RLlib's `foreach_env_runner` does, but for the errors: it logs them and gives the answers alone.
        results = self._runners._worker_manager.foreach_actor(
            list(calls.values()), remote_actor_ids=list(calls), timeout_seconds=None
        )
        answers = {}
        for result in results:
            if result.ok:
                answers[result.actor_id] = result.get()
            elif isinstance(error := result.get(), RayActorError | RaySystemError | OutOfMemoryError):
                self._deaths.add(result.actor_id, error)
            else:
                raise error
        return answers

    def take_in(self, report: RolloutReport) -> None:
        """Keep what callbacks logged.

        Raises:
            InputError, RunnerError: the report brings no trajectories but a failure.
        """
        if report.input_error is not None:
            raise InputError(report.input_error)
        if report.failure is not None:
            raise RunnerError(f"an env runner met a bug:\n{report.failure}")
        if report.logged is not None:
            self._logged.append(report.logged)

    def _round(self, plans: Sequence[EpisodePlan], rollout: RolloutSettings) -> list[RolloutReport]:
        alive = self.runners_alive()
        shares = zip(alive, split_plans(plans, len(alive)), strict=True)
        jobs = {runner: self.job(share, rollout) for runner, share in shares if share}
        return list(self.on_runners({r: functools.partial(_sample, job=job) for r, job in jobs.items()}).values())
