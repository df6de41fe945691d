"""What algorithms share that learn from stored trajectories."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import LEARNER_RESULTS

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.collected import Collected
from rllib_agentic.algorithms.config import AgenticConfig
from rllib_agentic.algorithms.update import Update
from rllib_agentic.envs.advice import advised, drawing
from rllib_agentic.envs.registry import env_factory
from rllib_agentic.errors import InputError
from rllib_agentic.offline.collect import Spoken, collect
from rllib_agentic.offline.dataset import OfflineData, load_offline
from rllib_agentic.offline.settings import CollectSettings
from rllib_agentic.rollout.spoken import Speech
from rllib_agentic.trajectory import Trajectory


class Offline(Agentic):
    """Reads (and where asked for collects) trajectories at the start, and gives iterations their part of them.

    Weights go to the runners only before an evaluation, or where a subclass samples.
    """

    offline_use: ClassVar[Literal["never", "sometimes", "always"]] = "sometimes"

    def setup(self, config: AgenticConfig) -> None:
        """Start everything, then read."""
        super().setup(config)
        self._stale_runners = False
        offline = self._sections.offline
        self._data: OfflineData | None = None
        if offline.has_data:
            speech = self._sections.speech().to(self._schema)
            collected = [] if offline.collect is None else self._collect_stored(offline.collect, speech)
            self._data = load_offline(offline, speech, collected, schemas=self._schemas)
        elif self.offline_use == "always":
            raise InputError(
                f"config.offline: {type(self).__name__} learns from stored trajectories: name their folder as "
                "offline.paths, or have some collected by offline.collect"
            )

    def evaluate_episodes(self, num_turns: int | None = None) -> tuple[dict[str, Any], list[Trajectory]]:
        """Send the runners the weights of now, then play held-out tasks."""
        self._refresh_runners()
        return super().evaluate_episodes(num_turns)

    def _refresh_runners(self) -> None:
        if self._stale_runners:
            self._publish_weights()
            self._stale_runners = False

    def _train_on_stored(self) -> None:
        """An iteration without sampling."""
        update = self._stored_update(self.iteration + 1)
        metrics = self._learn(update)
        self._stale_runners = self._stale_runners or update.batch is not None
        self._log(metrics, (LEARNER_RESULTS, DEFAULT_MODULE_ID))
        self._log(update.metrics | self._data_metrics(), "offline")

    def _stored_update(self, iteration: int) -> Update:
        """What an iteration without sampling trains on."""
        return super()._make_update(self._stored_batch(), iteration)

    def _stored_batch(self) -> Collected:
        """This iteration's part of the stored trajectories, each a group of its own."""
        assert self._data is not None
        size = self._sections.offline.trajectories_per_iteration
        batch = self._data.batch(self.iteration, size, self._sections.seed)
        return Collected(groups=[[t] for t in batch], keep=[True] * len(batch))

    def _data_metrics(self) -> dict[str, float]:
        assert self._data is not None
        held = len(self._data.trajectories)
        seen = (self.iteration + 1) * self._sections.offline.trajectories_per_iteration
        return {"trajectories": held, "epochs": seen / held} | {f"num_{k}": v for k, v in self._data.counts.items()}

    def _collect_stored(self, settings: CollectSettings, speech: Speech) -> list[Trajectory]:
        make = env_factory(self.config.env, **self._sections.env_config.args)
        expert = settings.policy == "expert"
        found: list[Trajectory] = []
        collect(
            Spoken(speech, expert),
            advised(make) if expert else drawing(make),
            self._schema,
            found.extend,
            policy=settings.policy,
            split=settings.split,
            episodes=settings.episodes,
            group_size=settings.group_size,
            max_turns=max(self._schema.max_turns, self._sections.rollout.max_turns),
            seed=settings.seed,
            call_timeout_s=self._sections.env_config.call_timeout_s,
        )
        return found
