"""PPO for language models: a critic, and GAE over sampled tokens."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class AgenticPPOConfig(AgenticConfig):
    """Clipped surrogate and clipped value loss (arXiv:1707.06347), GAE over sampled tokens (arXiv:1506.02438).

    The critic is a linear head on the policy's last hidden state; with gamma and lambda 1, usual for language models,
    advantages are returns minus values. Groups are not needed. ``learner.kl`` takes its divergence from the reward, as
    in InstructGPT (arXiv:2203.02155, equation 2), once ``coefficient`` is above 0.

    Example:
        >>> AgenticPPOConfig().environment("frozenlake").sections().needs_critic
        True
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or AgenticPPO)
        self.training(
            advantages={"type": "gae", "gamma": 1.0, "lam": 1.0, "whiten": True},
            loss={"type": "ppo_clip", "clip_low": 0.2, "clip_high": 0.2},
            learner={
                "aggregation": "token_mean",
                "minibatches": 4,
                "value": {"coefficient": 0.5, "clip": 0.2},
                "kl": {"place": "reward"},
            },
        )


class AgenticPPO(Agentic):
    """PPO for language models, ``PPO_LLM`` in YAML; see :class:`AgenticPPOConfig`."""

    config_class = AgenticPPOConfig
