"""StarPO-S (RAGEN, arXiv:2504.20073): StarPO made stable."""

from __future__ import annotations

from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.config import AgenticConfig


class StarPO_SConfig(AgenticConfig):
    """StarPO against the echo trap: uncertain tasks only, a critic, a higher upper clip, no pull to the reference.

    Of the groups of an iteration only the quarter whose rewards spread most is trained. Eight groups of two earn
    (1, 1), (0, 1), (0, 0), (1, 1), (0, 0.2), (0, 0), (1, 1), (0, 0): their standard deviations are 0, 0.71, 0, 0, 0.14,
    0, 0, 0, a quarter is two groups, and the second and the fifth are kept. A trajectory of three sampled tokens with
    return 1, which the critic valued at 0.4, 0.5 and 0.9, then gets the advantages 0.6, 0.5 and 0.1 (GAE with gamma and
    lambda 1), whitened over the tokens of the kept groups.

    Example:
        The spreads, the quarter of eight groups, and the advantages before they are whitened:

        >>> import numpy as np
        >>> from rllib_agentic.advantages.gae import gae
        >>> rewards = [(1, 1), (0, 1), (0, 0), (1, 1), (0, 0.2), (0, 0), (1, 1), (0, 0)]
        >>> spreads = np.std(rewards, axis=1, ddof=1)
        >>> spreads.round(2).tolist(), sorted(np.argsort(-spreads)[: len(spreads) // 4].tolist())
        ([0.0, 0.71, 0.0, 0.0, 0.14, 0.0, 0.0, 0.0], [1, 4])
        >>> gae([0.4, 0.5, 0.9], [0, 0, 1], gamma=1.0, lam=1.0).round(2).tolist()
        [0.6, 0.5, 0.1]
        >>> StarPO_SConfig().environment("frozenlake").sections().filters[0].fraction
        0.25
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or StarPO_S)
        self.training(
            advantages={"type": "gae", "gamma": 1.0, "lam": 1.0, "whiten": True},
            loss={"type": "ppo_clip", "clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0},
            learner={
                "aggregation": "token_mean",
                "entropy_coefficient": 0.001,
                "value": {"coefficient": 0.5, "clip": 0.2},
            },
            filters=[{"type": "reward_variance", "rule": "fraction", "fraction": 0.25}],
        )


class StarPO_S(Agentic):
    """StarPO-S; see :class:`StarPO_SConfig`."""

    config_class = StarPO_SConfig
