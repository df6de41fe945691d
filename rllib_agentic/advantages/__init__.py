"""From raw rewards, and a critic's values where there is one, to advantages. Numpy only."""

from rllib_agentic.advantages.critic import CriticEstimator, CriticTargets, ValuedActions
from rllib_agentic.advantages.estimator import (
    ESTIMATORS,
    Advantages,
    Estimator,
    TokenPenaltyEstimator,
    advantage_metrics,
)
from rllib_agentic.advantages.row_targets import RowTargets, targets_on_rows
from rllib_agentic.advantages.whitening import Moments, moments_of, whiten

__all__ = [
    "ESTIMATORS",
    "Advantages",
    "CriticEstimator",
    "CriticTargets",
    "Estimator",
    "Moments",
    "RowTargets",
    "TokenPenaltyEstimator",
    "ValuedActions",
    "advantage_metrics",
    "moments_of",
    "targets_on_rows",
    "whiten",
]
