"""REINFORCE++ with the group's mean as baseline (arXiv:2501.03262)."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class ReinforcePPBaselineConfig(AgenticConfig):
    """Rewards against the group's mean, then whitened over the whole batch.

    The paper's variant for tasks with sparse or differently scaled rewards. Its divergence stands in the loss, with the
    estimator k2, whose gradient is that of the divergence.

    Example:
        >>> ReinforcePPBaselineConfig().environment("frozenlake").sections().learner.kl.estimator
        'k2'
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or ReinforcePPBaseline)
        self.training(
            advantages={"type": "reinforce_pp", "baseline": "group_mean"},
            loss={"type": "ppo_clip", "clip_low": 0.2, "clip_high": 0.2},
            learner={"aggregation": "token_mean", "kl": {"coefficient": 0.001, "place": "loss", "estimator": "k2"}},
        )


class ReinforcePPBaseline(Agentic):
    """REINFORCE++ with baseline; see :class:`ReinforcePPBaselineConfig`."""

    config_class = ReinforcePPBaselineConfig
