"""From the groups of an iteration to the optimizer steps that the learners take."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ray.rllib.core.learner.learner_group import LearnerGroup

from rllib_agentic.advantages import Advantages, advantage_metrics
from rllib_agentic.algorithms.collected import Collected
from rllib_agentic.algorithms.sections import Sections
from rllib_agentic.learner.report import merge_reports
from rllib_agentic.learner.train_batch import TrainBatch, plan_minibatches
from rllib_agentic.rollout.seeds import seed_of
from rllib_agentic.trajectory import rows_of
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


def make_update(collected: Collected, sections: Sections, *, iteration: int) -> Update:
    """Estimate advantages over the groups that were kept, and lay out the optimizer steps."""
    places = [i for i, stays in enumerate(collected.kept_flags) if stays]
    kept = [collected.trajectories[i] for i in places]
    metrics: dict[str, float] = {}
    if sections.needs_critic:
        estimated: list[Advantages | None] = [None if t.invalid else [0.0] * len(t.turns) for t in kept]
    else:
        estimated = sections.advantages(kept)
        metrics = {f"advantages/{name}": value for name, value in advantage_metrics(kept, estimated).items()}
    rows: list[Row] = []
    for number, (trajectory, advantages) in enumerate(zip(kept, estimated, strict=True)):
        if advantages is not None:
            rows += rows_of(trajectory, advantages, number=number)
    advantages_of_all: list[Advantages | None] = [None] * len(collected.trajectories)
    if not sections.needs_critic:
        for place, advantages in zip(places, estimated, strict=True):
            advantages_of_all[place] = advantages
    return Update(_plan(rows, sections, collected.loss_scale, iteration), advantages_of_all, metrics)


def _plan(rows: list[Row], sections: Sections, loss_scale: float, iteration: int) -> TrainBatch | None:
    if not rows:
        return None
    learner = sections.learner
    batch = plan_minibatches(
        rows,
        num_epochs=learner.num_epochs,
        num_minibatches=learner.minibatches,
        minibatch_size=learner.minibatch_size,
        seed=seed_of(sections.seed, "minibatches", iteration),
        aggregation=learner.aggregation,
        constant=learner.constant,
    )
    if loss_scale == 1.0:
        return batch
    scaled = tuple(replace(step, weights=step.weights * loss_scale) for step in batch.minibatches)
    return replace(batch, minibatches=scaled)
