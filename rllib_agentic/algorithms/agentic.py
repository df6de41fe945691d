"""The algorithm: rollouts, filters, advantages, update; presets differ only in their config."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow.fs
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import (
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)

from rllib_agentic.algorithms.ahead import RolloutsAhead
from rllib_agentic.algorithms.checkpoints import write_manifest
from rllib_agentic.algorithms.collected import Collected
from rllib_agentic.algorithms.config import AgenticConfig
from rllib_agentic.algorithms.dispatch import Dispatcher
from rllib_agentic.algorithms.environments import Environments
from rllib_agentic.algorithms.episode_metrics import episode_metrics, metrics_by_env, success_by_env
from rllib_agentic.algorithms.events import EVENTS, EventLog
from rllib_agentic.algorithms.held_out import play_held_out, summarise
from rllib_agentic.algorithms.inference import Inference
from rllib_agentic.algorithms.iteration_log import IterationLog, compiled
from rllib_agentic.algorithms.last_good import LastGood
from rllib_agentic.algorithms.monitor import Monitor, nested
from rllib_agentic.algorithms.reactions import Reactions
from rllib_agentic.algorithms.update import Update, make_update
from rllib_agentic.diagnostics import Alarm
from rllib_agentic.errors import TooManyFailuresError
from rllib_agentic.filters import KeptTasks, RefillAction, apply_filters
from rllib_agentic.rollout.episode import EpisodePlan
from rllib_agentic.rollout.group import plan_group
from rllib_agentic.trajectory.trajectory import Task, Trajectory

logger = logging.getLogger(__name__)

CONTROL_STATE = "agentic_control"


class Agentic(Algorithm):
    """Trains an LLM policy on multi-turn tasks.

    One iteration is: draw tasks, play a group of episodes each, filter groups, estimate advantages on the driver, and
    update on the learners. Everything random follows from the run's seed and the iteration, and everything that an
    iteration depends on is in the checkpoint, so a resumed run equals one that was never stopped.
    """

    config_class: ClassVar[type[AgenticConfig]] = AgenticConfig
    """The config whose defaults make the preset; all that a preset's own class sets."""
    offline_use: ClassVar[Literal["never", "sometimes", "always"]] = "never"
    """Whether the algorithm learns from the stored trajectories of section ``offline``."""
    trains_pairs: ClassVar[bool] = False
    """Whether rows are laid out by pairs, as the loss ``dpo`` needs them."""

    @classmethod
    def get_default_config(cls) -> AgenticConfig:
        """The preset's defaults."""
        return cls.config_class(algo_class=cls)

    @classmethod
    def _should_create_evaluation_env_runners(cls, eval_config: Any) -> bool:
        # Held-out tasks run on the training runners, which hold the weights already.
        return False

    def setup(self, config: AgenticConfig) -> None:
        """Deploy the environment, build runners and learners, and publish the first weights."""
        self._environments: Environments | None = None
        self._engines: Inference | None = None
        self._sections = self.config.sections()
        for sections in (self._sections, self.config.get_evaluation_config_object().sections()):
            sections.check_model()
        self._environments = Environments(self._sections.env_settings(self.config.env))
        schemas = self._environments.schemas
        self._schemas = {self.config.env: schemas.pop(self.config.env)} | schemas
        self._schema = self._schemas[self.config.env]
        self._sections.check_against(self._schemas)
        if not self._sections.engine.in_runner:
            self._engines = Inference(self._sections)
        super().setup(config)
        self._iteration_log = IterationLog(self.metrics)
        self._held_out_sections = self.evaluation_config.sections()
        self._held_out_sections.check_against(self._schemas)
        self._sampler = self._sections.sampler(self._schemas)
        self._budgets = self._sections.budgets(self._schemas)
        self._kept_tasks = KeptTasks()
        self._success: dict[str, dict[str, float]] = {"training": {}, "evaluation": {}}
        self._empty_iterations = 0
        self._evaluation_at_start: dict[str, Any] | None = None
        self._dispatcher = Dispatcher(self.env_runner_group, self._environments.connections, self._engines)
        self._ahead = RolloutsAhead(self._dispatcher)
        self._writer = self._sections.store.writer(self._durable_folder())
        self._events = EventLog()
        self._stopped_by: str | None = None
        self._seen: dict[str, Any] = {}
        on_policy = self.offline_use == "never"
        self._diagnostics = Monitor(self._sections.diagnostics, self._sections.seed, on_policy=on_policy)
        last_good = LastGood(self._durable_folder() / "last_good")
        last_good.clear()
        self._reactions = Reactions(self.config, self._diagnostics, last_good, self.learner_group)
        self._last_good = last_good
        self._publish_weights()

    def _durable_folder(self) -> Path:
        """The trial's folder in its storage where that is local; Tune's working folder does not outlive the session."""
        storage = self._storage
        if storage is not None and isinstance(storage.storage_filesystem, pyarrow.fs.LocalFileSystem):
            return Path(storage.trial_fs_path)
        return Path(self.logdir)

    # --- one iteration ------------------------------------------------------------------------------------------

    def step(self) -> dict[str, Any]:
        """Evaluate first where the run is to be compared with its start, then go on as RLlib does."""
        if self.config.evaluation_at_start and self._evaluation_at_start is None:
            self._evaluation_at_start = self.evaluate()
        self._success = {"training": {}, "evaluation": {}}
        results = super().step()
        self._iteration_log.finish(results)
        if self._evaluation_at_start is not None:
            results["evaluation_at_start"] = self._evaluation_at_start
        if self._seen:
            results["diagnostics"] = self._seen
        for change in self._budgets.advance(self.iteration + 1, **self._success):
            self._events.add("curriculum", self.iteration + 1, str(change))
        if events := self._events.take():
            results[EVENTS] = events
        if self._stopped_by is not None:
            results |= {"done": True, "stopped_by": self._stopped_by}
        return results

    def training_step(self) -> None:
        """One iteration."""
        iteration = self.iteration + 1
        with self.metrics.log_time((TIMERS, ENV_RUNNER_SAMPLING_TIMER)):
            collected = self._collect(iteration)
        unseen = self._sections.rewards.unseen(collected.trajectories) if iteration == 1 else []
        if unseen:
            logger.warning("config.rewards: no turn of the first iteration reports %s", ", ".join(unseen))
        update = self._make_update(collected, iteration)
        version = self._dispatcher.policy_version
        self._dispatcher.rest()
        self._diagnostics.before_update(iteration, collected.groups, self.learner_group)
        metrics = self._learn(update)
        if update.batch is not None:
            with self.metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)):
                self._publish_weights()
        elif iteration == 1 and not self._sections.filters and self.offline_use == "never":
            raise TooManyFailuresError("the first iteration gave nothing to train on: no episode is valid")
        else:
            logger.warning(
                "iteration %d trained nothing: %s", iteration, collected.message or "nothing in it to learn from"
            )
        if self._writer is not None:
            self._writer.write(
                iteration, collected.trajectories, kept=collected.kept_flags, advantages=update.advantages
            )
        sampled = episode_metrics(collected.trajectories) | metrics_by_env(collected.trajectories)
        self._success["training"] = success_by_env(collected.trajectories)
        self._sampler.observe(collected.groups)
        self._log(metrics, (LEARNER_RESULTS, DEFAULT_MODULE_ID))
        sampled |= collected.metrics | update.metrics
        self._iteration_log.of_callbacks(self._dispatcher.take_logged(), sampled)
        self._iteration_log.samples(sampled, collected.seconds)
        self._log(self._budgets.metrics(), "curriculum")
        self._log(self._sampler.metrics(), "tasks")
        if self._environments is not None:
            self._log(self._environments.figures(), "env_service")
        if self._sections.rollout.max_staleness > 0:
            self._log(self._ahead.metrics(), "asynchrony")
        alarms, seen = self._diagnostics.after_update(iteration, collected.trajectories, version, metrics)
        self._seen = nested(seen)
        self._act_on(alarms, iteration)

    def _act_on(self, alarms: Sequence[Alarm], iteration: int) -> None:
        outcome = self._reactions.act(alarms, version=self._dispatcher.policy_version, events=self._events)
        self._sections = outcome.sections or self._sections
        self._stopped_by = outcome.stop
        if outcome.went_back:
            self._ahead.recall()
            self._publish_weights()
        elif self._diagnostics.keeps_now(iteration):
            self._last_good.save(self.learner_group)

    def _make_update(self, collected: Collected, iteration: int) -> Update:
        """What this iteration trains on."""
        return make_update(collected, self._sections, iteration=iteration, learners=self.learner_group)

    def _learn(self, update: Update) -> dict[str, float]:
        """Take the optimizer steps, if there are any."""
        if update.batch is None:
            return {"trained_tokens": 0.0}
        with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
            return update.train(self.learner_group)

    def _collect(self, iteration: int) -> Collected:
        """Sample groups, filter them, and sample again where the refill settings say so."""
        started = time.perf_counter()
        wanted = self._sections.rollout.groups_per_iteration
        collected = Collected()
        decision = None
        while decision is None or decision.action is RefillAction.DRAW:
            number = wanted if decision is None else decision.draw
            groups, engine = self._sample_groups(iteration, collected.tries, number)
            filtered = apply_filters(self._sections.filters, groups)
            self._kept_tasks.add(groups, filtered.keep)
            collected.add(groups, filtered, engine)
            decision = self._sections.refill.decide(
                kept=sum(collected.keep),
                wanted=wanted,
                tries=collected.tries,
                empty_iterations=self._empty_iterations,
            )
        self._empty_iterations = decision.empty_iterations
        if decision.action is RefillAction.STOP:
            raise TooManyFailuresError(decision.message)
        if self._sections.filters:
            collected.metrics |= {f"filter/{name}": value for name, value in self._kept_tasks.metrics().items()}
        collected.limit(wanted)
        collected.loss_scale, collected.message = decision.loss_scale, decision.message
        collected.seconds = time.perf_counter() - started
        return collected

    def _sample_groups(
        self, iteration: int, attempt: int, number: int
    ) -> tuple[list[list[Trajectory]], dict[str, float]]:
        rollout = self._sections.rollout

        def plan(task: Task, place: str) -> list[EpisodePlan]:
            return plan_group(
                task,
                group_id=place,
                size=rollout.group_size,
                run_seed=self._sections.seed,
                iteration=iteration if rollout.max_staleness == 0 else 0,
                max_turns=self._budgets[task.env],
            )

        if rollout.max_staleness > 0:
            landed, engine = self._ahead.take(
                number, lambda n: plan(self._sampler.draw(1)[0], f"ahead.{n}"), rollout, first=attempt == 0
            )
            groups, plans = [group.trajectories for group in landed], [list(group.plans) for group in landed]
        else:
            plans = [
                plan(task, f"{iteration}.{attempt}.{place}") for place, task in enumerate(self._sampler.draw(number))
            ]
            trajectories, engine = self._dispatcher.run(list(itertools.chain(*plans)), rollout)
            played = iter(trajectories)
            groups = [list(itertools.islice(played, len(group))) for group in plans]
        self._check_failures(list(itertools.chain(*groups)))
        return [
            [self._sections.rewards(t, most_tokens=rollout.most_action_tokens(made[0].max_turns)) for t in group]
            for group, made in zip(groups, plans, strict=True)
        ], engine

    def _check_failures(self, trajectories: Sequence[Trajectory]) -> None:
        kinds = [t.invalid for t in trajectories if t.invalid is not None]
        allowed = self._sections.rollout.max_invalid_share
        if len(kinds) > allowed * len(trajectories):
            counts = ", ".join(f"{kind}: {kinds.count(kind)}" for kind in sorted(set(kinds)))
            raise TooManyFailuresError(
                f"{len(kinds)} of {len(trajectories)} episodes are invalid ({counts}) after "
                f"{self._sections.rollout.max_attempts} attempts each; rollout.max_invalid_share allows {allowed:.0%}"
            )

    def _publish_weights(self) -> None:
        finish_turns = self._sections.rollout.turns_at_update == "finish"
        if not self._dispatcher.publish_from(self.learner_group, finish_turns=finish_turns):
            state = self.learner_group.get_state(
                components=f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}", inference_only=True
            )[COMPONENT_LEARNER]
            self._dispatcher.publish(
                int(state["weights_seq_no"]),
                state[COMPONENT_RL_MODULE][DEFAULT_MODULE_ID],
                finish_turns=finish_turns,
            )
        self._ahead.weights_published(self._sections.rollout)

    # --- evaluation ---------------------------------------------------------------------------------------------

    def evaluate(self, parallel_train_future: Any = None) -> dict[str, Any]:
        """Play held-out tasks with the current policy and give rates with 95 % intervals.

        Uses ``evaluation_config`` (split, temperature, ...), ``evaluation_duration`` (tasks) and
        ``evaluation_samples_per_task``. The same tasks and seeds every time, so that two evaluations compare.
        """
        return self.evaluate_episodes()[0]

    def evaluate_episodes(self, num_turns: int | None = None) -> tuple[dict[str, Any], list[Trajectory]]:
        """As :meth:`evaluate`, with the episodes themselves.

        Args:
            num_turns: play tasks until so many turns were taken, instead of ``evaluation_duration`` tasks.

        Returns:
            the metrics of :func:`~rllib_agentic.algorithms.held_out.summarise`, what callbacks logged on the runners,
            ``split`` and ``splits_hash``; and the trajectories.
        """
        self._call_back("on_evaluate_start")
        trajectories: list[Trajectory] = []
        for env, schema in self._schemas.items():
            trajectories += play_held_out(
                self._dispatcher,
                self._held_out_sections,
                schema,
                num_tasks=self.config.evaluation_duration,
                samples_per_task=self.config.evaluation_samples_per_task,
                seed=self._sections.seed,
                num_turns=num_turns,
                prefix="eval" if env == self.config.env else f"eval:{env}",
            )
        self._success["evaluation"] = success_by_env(trajectories)
        split, splits_hash = self._held_out_sections.env_config.split, self._schema.splits_hash
        logged = compiled(self._dispatcher.take_logged())
        metrics = logged | summarise(trajectories) | {"split": split, "splits_hash": splits_hash}
        self._call_back("on_evaluate_end", evaluation_metrics=metrics)
        return metrics, trajectories

    def _call_back(self, name: str, **arguments: Any) -> None:
        functions = getattr(self.config, f"callbacks_{name}")
        arguments |= {"algorithm": self, "metrics_logger": self.metrics}
        make_callback(name, callbacks_objects=self.callbacks, callbacks_functions=functions, kwargs=arguments)

    # --- metrics ------------------------------------------------------------------------------------------------

    def _log(self, values: dict[str, Any], key: str | tuple[str, ...]) -> None:
        self._iteration_log.values(values, key)

    # --- checkpoints --------------------------------------------------------------------------------------------

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state, and what the driver itself must remember."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        state[CONTROL_STATE] = {
            "curriculum": self._budgets.state(),
            "kept_tasks": self._kept_tasks.state(),
            "sampler": self._sampler.state(),
            "ahead": self._ahead.state(),
            "empty_iterations": self._empty_iterations,
            "evaluation_at_start": self._evaluation_at_start,
            "monitor": self._diagnostics.state(),
            "changes": self._reactions.state(),
            "logged_sections": self._iteration_log.state(),
        }
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Take all of it back."""
        super().set_state(state)
        if CONTROL_STATE in state:
            control = state[CONTROL_STATE]
            self._budgets.set_state(control["curriculum"], self.iteration)
            self._kept_tasks.set_state(control["kept_tasks"])
            self._sampler.set_state(control["sampler"])
            self._ahead.set_state(control["ahead"])
            self._empty_iterations = control["empty_iterations"]
            self._evaluation_at_start = control["evaluation_at_start"]
            self._diagnostics.set_state(control["monitor"])
            self._sections = self._reactions.set_state(control["changes"]) or self._sections
            self._iteration_log.set_state(control.get("logged_sections", ()))

    def save_to_path(self, path: Any = None, *, filesystem: Any = None, **kwargs: Any) -> str:
        """Save, and close what was saved with a list of its files, so that a cut checkpoint is never taken for one."""
        saved = super().save_to_path(path, filesystem=filesystem, **kwargs)
        if Path(saved).is_dir():
            self._last_good.copy_into(Path(saved))
            write_manifest(Path(saved))
        return saved

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """Restore, then publish the restored weights under their version."""
        super().restore_from_path(path, *args, **kwargs)
        self._last_good.take_from(Path(path))
        self._publish_weights()

    def cleanup(self) -> None:
        """Stop runners, learners, engines and the environments' services."""
        try:
            if self._engines is not None and self.learner_group is not None:
                self._engines.release(self.learner_group)
            super().cleanup()
        finally:
            for service in (self._engines, self._environments):
                if service is not None:
                    service.stop()
