"""DAPO (arXiv:2503.14476): decoupled clip and dynamic sampling."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class DAPOConfig(AgenticConfig):
    """GRPO with the four changes of the paper, and no pull to the reference policy.

    Clip-higher (equation 8: 0.2 below, 0.28 above), dynamic sampling (groups whose rewards are all equal are dropped
    and drawn again, at most ``refill.max_tries`` times), the mean over all tokens of the batch, and the soft punishment
    of overlong trajectories (equation 13). Sixteen optimizer steps a batch, as there: with one, nothing would clip.

    Example:
        >>> DAPOConfig().environment("frozenlake").sections().loss.clip_high
        0.28
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DAPO)
        self.training(
            advantages={"type": "grpo", "scale": "std"},
            loss={"type": "ppo_clip", "clip_low": 0.2, "clip_high": 0.28},
            learner={"aggregation": "token_mean", "minibatches": 16},
            rewards={"overlong": {"buffer": 0.2}},
            filters=[{"type": "reward_variance", "rule": "threshold", "threshold": 0.0}],
            refill={"resample": True, "max_tries": 3},
        )


class DAPO(Agentic):
    """DAPO; see :class:`DAPOConfig`."""

    config_class = DAPOConfig
