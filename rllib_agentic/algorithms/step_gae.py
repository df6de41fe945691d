"""Step-level PPO (Agent-R1, arXiv:2511.14460): a turn is a step of the MDP."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class StepGAEConfig(AgenticConfig):
    """A critic that is asked before each turn, GAE over turns, and one advantage for all tokens of a turn.

    The divergence, 0.001 in the loss with the estimator k3, is that of Agent-R1's settings. A worked example stands at
    :class:`~rllib_agentic.advantages.step_gae.StepGAEEstimator`.

    Example:
        >>> StepGAEConfig().environment("frozenlake").sections().learner.kl.coefficient
        0.001
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or StepGAE)
        self.training(
            advantages={"type": "step_gae", "gamma": 1.0, "lam": 1.0, "whiten": True},
            loss={"type": "ppo_clip", "clip_low": 0.2, "clip_high": 0.2},
            learner={
                "aggregation": "token_mean",
                "minibatches": 4,
                "value": {"coefficient": 0.5, "clip": 0.2},
                "kl": {"coefficient": 0.001, "place": "loss", "estimator": "k3"},
            },
        )


class StepGAE(Agentic):
    """Step-level PPO; see :class:`StepGAEConfig`."""

    config_class = StepGAEConfig
