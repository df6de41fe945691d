"""StarPO (RAGEN, arXiv:2504.20073): the whole trajectory is what is optimised."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class StarPOConfig(AgenticConfig):
    """State-thinking-actions-reward policy optimisation: one return and one advantage for all turns of a trajectory.

    The group-relative form of the paper, with its weak pull to the reference policy and its entropy bonus (both 0.001).
    Four members of a task return 2, 1, 0 and 0 in sum over their turns. The mean is 0.75 and the standard deviation
    0.957, so every token of the first member, in whichever turn, gets 1.31, those of the second 0.26, and those of the
    others -0.78.

    Example:
        >>> StarPOConfig().environment("frozenlake").sections().learner.entropy_coefficient
        0.001
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or StarPO)
        self.training(
            advantages={"type": "grpo", "scale": "std"},
            loss={"type": "ppo_clip", "clip_low": 0.2, "clip_high": 0.2},
            learner={
                "aggregation": "sequence_mean_token_mean",
                "minibatches": 4,
                "entropy_coefficient": 0.001,
                "kl": {"coefficient": 0.001, "place": "loss", "estimator": "k3"},
            },
        )


class StarPO(Agentic):
    """StarPO; see :class:`StarPOConfig`."""

    config_class = StarPOConfig
