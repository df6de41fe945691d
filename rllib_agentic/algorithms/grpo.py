"""GRPO (DeepSeekMath, arXiv:2402.03300) over multi-turn trajectories."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class GRPOConfig(AgenticConfig):
    """Group-relative advantages over the group's standard deviation; a symmetric clip; one length norm a sequence.

    Equations 3 and 4 of the paper, without its pull to the reference policy: set ``learner.kl.coefficient`` (0.04
    there, 0.001 in AgentGym-RL and Agent-R1) to have it in the loss, estimator k3.

    Example:
        >>> GRPOConfig().environment("frozenlake").sections().learner.aggregation
        'sequence_mean_token_mean'
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or GRPO)
        self.training(
            advantages={"type": "grpo", "scale": "std"},
            loss={"type": "ppo_clip", "clip_low": 0.2, "clip_high": 0.2},
            learner={"aggregation": "sequence_mean_token_mean"},
        )


class GRPO(Agentic):
    """GRPO; see :class:`GRPOConfig`."""

    config_class = GRPOConfig
