"""GiGPO (arXiv:2505.10978): groups of episodes, and inside them groups of turns from equal states."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class GiGPOConfig(AgenticConfig):
    """Episode-level and step-level advantages without a critic.

    Needs an environment that names its states (``state_key``); without, it is GRPO without the division by the standard
    deviation. The divergence, 0.01 in the loss with the estimator k3, is that of the paper. A worked example stands at
    :class:`~rllib_agentic.advantages.gigpo.GiGPOEstimator`.

    Example:
        >>> GiGPOConfig().environment("frozenlake").sections().advantages.step_weight
        1.0
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or GiGPO)
        self.training(
            advantages={"type": "gigpo", "step_weight": 1.0, "gamma": 0.95, "scale": "none"},
            loss={"type": "ppo_clip", "clip_low": 0.2, "clip_high": 0.2},
            learner={"aggregation": "token_mean", "kl": {"coefficient": 0.01, "place": "loss", "estimator": "k3"}},
        )


class GiGPO(Agentic):
    """GiGPO; see :class:`GiGPOConfig`."""

    config_class = GiGPOConfig
