"""SAPO (arXiv:2511.20347): a soft gate in place of the clip."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class SAPOConfig(AgenticConfig):
    """Tokens off the policy fade out smoothly, a little faster at negative advantages.

    Group-relative advantages and one length norm a sequence, as in GRPO.

    Example:
        >>> SAPOConfig().environment("frozenlake").sections().loss.tau_negative
        1.05
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or SAPO)
        self.training(
            advantages={"type": "grpo", "scale": "std"},
            loss={"type": "sapo", "tau_positive": 1.0, "tau_negative": 1.05},
            learner={"aggregation": "sequence_mean_token_mean", "minibatches": 4},
        )


class SAPO(Agentic):
    """SAPO; see :class:`SAPOConfig`."""

    config_class = SAPOConfig
