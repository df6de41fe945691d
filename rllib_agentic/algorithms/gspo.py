"""GSPO (arXiv:2507.18071): the ratio of the whole sequence."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class GSPOConfig(AgenticConfig):
    """One clipped ratio a trajectory: the geometric mean of its tokens' ratios.

    Clips are far narrower than PPO's (0.0003 below, 0.0004 above) because means of log-ratios are small: smaller than
    the difference between an engine and the learner in bfloat16, so old logprobs are the learner's own. Four optimizer
    steps a batch as in the paper; with one alone nothing would ever clip.

    Example:
        >>> GSPOConfig().environment("frozenlake").sections().loss.sequence_level
        True
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or GSPO)
        self.training(
            advantages={"type": "grpo", "scale": "std"},
            loss={"type": "gspo", "clip_low": 3e-4, "clip_high": 4e-4},
            learner={"aggregation": "sequence_mean_token_mean", "minibatches": 4, "recompute_old_logprobs": True},
        )


class GSPO(Agentic):
    """GSPO; see :class:`GSPOConfig`."""

    config_class = GSPOConfig
