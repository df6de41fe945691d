"""REINFORCE++ (arXiv:2501.03262): no critic, no groups, advantages whitened over the batch."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class ReinforcePPConfig(AgenticConfig):
    """Returns from each token on, whitened over the whole batch, with PPO's clip.

    The divergence from the reference policy is taken from every token's reward (estimator k1), as in the paper's
    equation for the advantage; a group of one is enough.

    Example:
        >>> ReinforcePPConfig().environment("frozenlake").sections().learner.kl.chosen_estimator
        'k1'
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or ReinforcePP)
        self.training(
            advantages={"type": "reinforce_pp", "baseline": "none"},
            loss={"type": "ppo_clip", "clip_low": 0.2, "clip_high": 0.2},
            learner={"aggregation": "token_mean", "kl": {"coefficient": 0.001, "place": "reward"}},
        )


class ReinforcePP(Agentic):
    """REINFORCE++; see :class:`ReinforcePPConfig`."""

    config_class = ReinforcePPConfig
