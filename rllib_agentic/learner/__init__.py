"""Optimizer steps over rows: the plan, the micro-batches, the objective, and the RLlib learner."""

from rllib_agentic.learner.report import LearnerReport, merge_reports
from rllib_agentic.learner.settings import LearnerSettings, LearnerSetup
from rllib_agentic.learner.train_batch import Minibatch, TrainBatch, plan_minibatches

__all__ = [
    "LearnerReport",
    "LearnerSettings",
    "LearnerSetup",
    "Minibatch",
    "TrainBatch",
    "merge_reports",
    "plan_minibatches",
]
