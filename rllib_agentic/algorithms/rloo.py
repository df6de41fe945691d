"""RLOO (arXiv:2402.14740): REINFORCE with a leave-one-out baseline."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class RLOOConfig(AgenticConfig):
    """The mean reward of the *other* members as baseline, and plain REINFORCE over whole trajectories.

    The whole trajectory is the action, so its logprob is the sum over its tokens; no ratio, no clip, one step a batch
    (section 3 of the paper). A divergence, where ``learner.kl.coefficient`` asks for one, is taken from the reward as
    there.

    Example:
        >>> RLOOConfig().environment("frozenlake").sections().learner.kl.place
        'reward'
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or RLOO)
        self.training(
            advantages={"type": "rloo"},
            loss={"type": "reinforce"},
            learner={"aggregation": "sequence_mean_token_sum", "kl": {"place": "reward"}},
        )


class RLOO(Agentic):
    """RLOO; see :class:`RLOOConfig`."""

    config_class = RLOOConfig
