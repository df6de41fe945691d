"""From the groups of an iteration to the optimizer steps that the learners take."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from ray.rllib.core.learner.learner_group import LearnerGroup

from rllib_agentic.advantages import Advantages, Estimator, TokenPenaltyEstimator, advantage_metrics
from rllib_agentic.advantages.action_tokens import Floats, with_penalties
from rllib_agentic.algorithms.collected import Collected
from rllib_agentic.algorithms.kl_reward import kl_penalties, take_from_rewards
from rllib_agentic.algorithms.sections import Sections
from rllib_agentic.learner.report import merge_reports
from rllib_agentic.learner.settings import KLSettings
from rllib_agentic.learner.train_batch import TrainBatch, plan_minibatches
from rllib_agentic.rollout.seeds import seed_of
from rllib_agentic.trajectory import Trajectory, rows_of
from rllib_agentic.trajectory.row import Row


@dataclass(frozen=True, slots=True)
class Update:
    """What an iteration trains on.

    Attributes:
        batch: the planned optimizer steps, or None where nothing is left to train on.
        advantages: for each trajectory its advantages; None where it is not trained or where the critic makes them.
        metrics: of the advantages.
    """

    batch: TrainBatch | None
    advantages: list[Advantages | None]
    metrics: dict[str, float]

    def train(self, learner_group: LearnerGroup) -> dict[str, float]:
        """Take all optimizer steps on all learners; the numbers do not depend on how many learners there are."""
        batch = self.batch
        results = learner_group.foreach_learner(lambda learner: learner.train_rows(batch))
        failed = [r for r in results if not r.ok]
        if failed:
            raise failed[0].get()
        return merge_reports([r.get() for r in results])


def make_update(collected: Collected, sections: Sections, *, iteration: int, learners: LearnerGroup) -> Update:
    """Estimate advantages over the groups that were kept, and lay out the optimizer steps.

    Args:
        collected: what was sampled.
        sections: of the config.
        iteration: its number.
        learners: asked for the reference policy's logprobs where the divergence belongs to the reward.
    """
    places = [i for i, stays in enumerate(collected.kept_flags) if stays]
    kept = [collected.trajectories[i] for i in places]
    metrics: dict[str, float] = {}
    penalties: list[list[Floats]] | None = None
    kl = sections.learner.kl
    if kl.place == "reward" and kl.coefficient > 0:
        penalties = _penalties(kept, learners, kl)
        flat = np.concatenate([np.zeros(0), *itertools.chain(*penalties)])
        metrics["kl_to_reference"] = float(flat.mean()) / kl.coefficient if len(flat) else 0.0
    if sections.needs_critic:
        estimated: list[Advantages | None] = [None if t.invalid else [0.0] * len(t.turns) for t in kept]
    else:
        estimated = _estimate(sections.advantages, kept, penalties)
        metrics |= {f"advantages/{name}": value for name, value in advantage_metrics(kept, estimated).items()}
    rows: list[Row] = []
    for number, (trajectory, advantages) in enumerate(zip(kept, estimated, strict=True)):
        if advantages is None:
            continue
        parts = rows_of(trajectory, advantages, number=number)
        if penalties is not None:
            parts = [take_from_rewards(row, cost) for row, cost in zip(parts, penalties[number], strict=True)]
        rows += parts
    advantages_of_all: list[Advantages | None] = [None] * len(collected.trajectories)
    if not sections.needs_critic:
        for place, advantages in zip(places, estimated, strict=True):
            advantages_of_all[place] = advantages
    return Update(plan_rows(rows, sections, collected.loss_scale, iteration), advantages_of_all, metrics)


def _penalties(trajectories: list[Trajectory], learners: LearnerGroup, kl: KLSettings) -> list[list[Floats]]:
    """One list a trajectory (empty where invalid), in it one array a row."""
    by_trajectory = [[] if t.invalid else rows_of(t, [0.0] * len(t.turns)) for t in trajectories]
    costs = iter(kl_penalties(list(itertools.chain(*by_trajectory)), learners, kl))
    return [list(itertools.islice(costs, len(rows))) for rows in by_trajectory]


def _estimate(
    estimator: Estimator, trajectories: list[Trajectory], penalties: list[list[Floats]] | None
) -> list[Advantages | None]:
    if penalties is None:
        return estimator(trajectories)
    by_token = [np.concatenate(parts) if parts else None for parts in penalties]
    if isinstance(estimator, TokenPenaltyEstimator) and estimator.takes_token_penalties:
        return estimator(trajectories, by_token)
    return estimator([t if p is None else with_penalties(t, p) for t, p in zip(trajectories, by_token, strict=True)])


def plan_rows(rows: list[Row], sections: Sections, loss_scale: float, iteration: int) -> TrainBatch | None:
    """Lay out the optimizer steps over rows as the section ``learner`` says; None where there are none.

    Args:
        rows: with advantages; rows that must stay together have one ``trajectory`` number.
        sections: of the config.
        loss_scale: factor for all weights.
        iteration: its number, for the shuffles.
    """
    if not rows:
        return None
    learner = sections.learner
    constant = learner.constant
    if learner.aggregation == "sum_over_constant" and constant is None:
        constant = sections.rollout.most_action_tokens()
    batch = plan_minibatches(
        rows,
        num_epochs=learner.num_epochs,
        num_minibatches=learner.minibatches,
        minibatch_size=learner.minibatch_size,
        seed=seed_of(sections.seed, "minibatches", iteration),
        aggregation=learner.aggregation,
        constant=constant,
    )
    if loss_scale != 1.0:
        scaled = tuple(replace(step, weights=step.weights * loss_scale) for step in batch.minibatches)
        batch = replace(batch, minibatches=scaled)
    other_terms = (
        sections.needs_critic
        or not sections.loss.weighs_by_advantage
        or learner.entropy_coefficient != 0
        or learner.kl.coefficient != 0
    )
    if other_terms or not any(row.advantages.any() for row in rows):
        return batch
    return batch.without_silent_rows()
