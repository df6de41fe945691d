"""ToRL (arXiv:2503.23383): tool-integrated reinforcement learning from the base model."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class ToRLConfig(AgenticConfig):
    """GRPO without divergence and entropy terms, on the outcome alone: +1 where the task is solved, -1 where it is not.

    The tools are the environment's; ``math_python`` is the paper's. The paper's penalty for code that does not run, off
    by default there and here, is ``rewards.per_episode: {code_failed: -0.5}``.

    Example:
        >>> ToRLConfig().environment("frozenlake").sections().rewards.outcome
        OutcomeReward(success=1.0, failure=-1.0)
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or ToRL)
        self.training(
            advantages={"type": "grpo", "scale": "std"},
            loss={"type": "ppo_clip", "clip_low": 0.2, "clip_high": 0.2},
            learner={"aggregation": "token_mean", "entropy_coefficient": 0.0, "kl": {"coefficient": 0.0}},
            rewards={"environment": 0.0, "outcome": {"success": 1.0, "failure": -1.0}},
        )


class ToRL(Agentic):
    """ToRL; see :class:`ToRLConfig`."""

    config_class = ToRLConfig
