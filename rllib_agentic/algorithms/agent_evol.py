"""AgentEvol (AgentGym, arXiv:2406.04151): explore, keep by reward, imitate, repeat."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from rllib_agentic.algorithms.collected import Collected
from rllib_agentic.algorithms.config import AgenticConfig
from rllib_agentic.algorithms.offline import Offline
from rllib_agentic.algorithms.update import Update


class AgentEvolConfig(AgenticConfig):
    """Reward-weighted cloning of the policy's own trajectories, merged with stored ones of an expert.

    Every iteration samples with the current policy, weighs each trajectory by its return (what returns nothing is left
    out), adds ``offline.trajectories_per_iteration`` stored ones if there are any, and takes optimizer steps on both.
    ``offline.clone_iterations`` iterations at the start imitate the stored ones alone: the paper's behaviour cloning,
    which makes the base agent. Without stored trajectories this is rejection sampling. ``offline.restart`` trains the
    first weights anew in every iteration, as ReST-EM does (arXiv:2312.06585), against drift and overfitting.

    Example:
        >>> AgentEvolConfig().environment("frozenlake").sections().advantages.weight
        'return'
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or AgentEvol)
        self.training(
            offline={"success": True, "trajectories_per_iteration": 64},
            advantages={"type": "cloning", "weight": "return"},
            loss={"type": "weighted_sft"},
            learner={"aggregation": "token_mean", "minibatches": 8},
        )


class AgentEvol(Offline):
    """Exploration and weighted cloning; see :class:`AgentEvolConfig`."""

    config_class = AgentEvolConfig
    restarts: ClassVar[bool] = True

    def training_step(self) -> None:
        """One iteration: of stored trajectories alone at the start where asked for, else sampled and merged."""
        if self._data is not None and self.iteration < self._sections.offline.clone_iterations:
            self._train_on_stored()
            return
        self._refresh_runners()
        super().training_step()

    def _learn(self, update: Update) -> dict[str, float]:
        if self._sections.offline.restart and update.batch is not None:
            for result in self.learner_group.foreach_learner(lambda learner: learner.restart()):
                if not result.ok:
                    raise result.get()
        return super()._learn(update)

    def _make_update(self, collected: Collected, iteration: int) -> Update:
        if self._data is None:
            return super()._make_update(collected, iteration)
        stored = self._stored_batch()
        merged = dataclasses.replace(
            collected, groups=collected.groups + stored.groups, keep=collected.keep + stored.keep
        )
        update = super()._make_update(merged, iteration)
        return dataclasses.replace(update, advantages=update.advantages[: len(collected.trajectories)])
