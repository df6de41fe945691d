"""CISPO (MiniMax-M1, arXiv:2506.13585): clipped importance weights."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class CISPOConfig(AgenticConfig):
    """REINFORCE whose importance weight is clipped, so that no token ever loses its gradient.

    No lower bound, as in the paper (equations 4 and 5); the upper one at 5, as in ScaleRL (arXiv:2510.13786); the mean
    over all tokens; no pull to the reference policy.

    Example:
        >>> CISPOConfig().environment("frozenlake").sections().loss.clip_high
        4.0
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or CISPO)
        self.training(
            advantages={"type": "grpo", "scale": "std"},
            loss={"type": "cispo", "clip_low": 1.0, "clip_high": 4.0},
            learner={"aggregation": "token_mean", "minibatches": 4},
        )


class CISPO(Agentic):
    """CISPO; see :class:`CISPOConfig`."""

    config_class = CISPOConfig
