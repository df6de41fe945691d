"""Bi-level GAE (VAGEN, arXiv:2510.16907; RAGEN): turn-level, then token-level advantages."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class BiLevelGAEConfig(AgenticConfig):
    """A critic whose credit passes from turn to turn at one discount and inside a turn at another.

    A worked example stands at :class:`~rllib_agentic.advantages.bi_level_gae.BiLevelGAEEstimator`.

    Example:
        >>> BiLevelGAEConfig().environment("frozenlake").sections().advantages.turn_gamma
        0.95
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or BiLevelGAE)
        self.training(
            advantages={"type": "bi_level_gae", "turn_gamma": 0.95, "turn_lam": 1.0, "gamma": 1.0, "lam": 1.0},
            loss={"type": "ppo_clip", "clip_low": 0.2, "clip_high": 0.28},
            learner={"aggregation": "token_mean", "minibatches": 4, "value": {"coefficient": 0.5, "clip": 0.2}},
        )


class BiLevelGAE(Agentic):
    """PPO with bi-level GAE; see :class:`BiLevelGAEConfig`."""

    config_class = BiLevelGAEConfig
