"""Dr. GRPO (arXiv:2503.20783): GRPO done right."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class DrGRPOConfig(AgenticConfig):
    """GRPO without its two biases.

    Advantages are not divided by the group's standard deviation (which favours tasks that are nearly always or never
    solved), and a trajectory's loss is divided by a constant and not by its own length (which favours long failures):
    section 3.2 of the paper. The constant is ``learner.constant``, by default the most tokens an episode may sample.

    Example:
        >>> DrGRPOConfig().environment("frozenlake").sections().learner.aggregation
        'sum_over_constant'
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DrGRPO)
        self.training(
            advantages={"type": "grpo", "scale": "none"},
            loss={"type": "ppo_clip", "clip_low": 0.2, "clip_high": 0.2},
            learner={"aggregation": "sum_over_constant"},
        )


class DrGRPO(Agentic):
    """Dr. GRPO; see :class:`DrGRPOConfig`."""

    config_class = DrGRPOConfig
