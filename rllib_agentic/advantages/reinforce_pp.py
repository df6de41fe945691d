"""REINFORCE++: returns whitened over the whole batch, with or without the group's mean as baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from rllib_agentic.advantages.action_tokens import Floats, by_turn, discounted_sums, token_rewards
from rllib_agentic.advantages.estimator import Advantages
from rllib_agentic.advantages.raw_rewards import reward_groups
from rllib_agentic.advantages.whitening import whiten
from rllib_agentic.components import Settings
from rllib_agentic.trajectory import Trajectory


class ReinforcePPEstimator(Settings):
    """Global advantage normalisation (Hu et al., REINFORCE++, arXiv:2501.03262).

    ``baseline="none"`` (REINFORCE++): the return of each sampled token is what is earned from it on,
    ``G_t = r_t + gamma * G_{t+1}`` with a turn's reward on its last sampled token, and ::

        A_t = (G_t - mean_batch(G)) / std_batch(G)

    ``baseline="group_mean"`` (REINFORCE++ w/ baseline): ``R_i - mean_group(R)`` stands in for ``G_t``, the same for
    all tokens of a trajectory. Mean and (population) std run over all sampled tokens of the batch, so a long
    trajectory weighs more. With ``learner.kl.place: reward`` the returns lose ``beta * KL`` of every token from t on,
    as in the paper's equation for A_t.

    Two groups of two, one token each: rewards (1, 0) and (1, 1). Without baseline the batch mean is 3/4 and the std
    0.433: 0.577, -1.732, 0.577, 0.577. With it, 1/2, -1/2, 0, 0 have mean 0 and std 0.354: 1.414, -1.414, 0, 0.

    A batch whose returns are all equal gives 0. With the baseline, groups of one and of equal rewards give exactly 0
    whatever the batch's mean is; they still take part in mean and std. Without baseline a group means nothing.

    Attributes:
        baseline: ``"none"`` or ``"group_mean"``.
        gamma: discount a sampled token; 1 with a baseline. Observation tokens discount nothing.
        tolerance: relative; rewards that are closer are equal.
    """

    type: ClassVar[str] = "reinforce_pp"

    baseline: Literal["none", "group_mean"] = "none"
    gamma: float = Field(default=1.0, ge=0, le=1)
    tolerance: float = Field(default=1e-6, ge=0)

    @property
    def needs_group(self) -> bool:
        """Whether a group of one can never have a signal."""
        return self.baseline == "group_mean"

    @model_validator(mode="after")
    def _no_discount_with_baseline(self) -> ReinforcePPEstimator:
        if self.baseline == "group_mean" and self.gamma != 1.0:
            raise ValueError(f"gamma {self.gamma} has no meaning with baseline 'group_mean', which compares totals")
        return self

    @property
    def takes_token_penalties(self) -> bool:
        """Whether returns differ by token, so that each token's penalty counts from it on."""
        return self.baseline == "none"

    def __call__(
        self, trajectories: Sequence[Trajectory], penalties: Sequence[Floats | None] | None = None
    ) -> list[Advantages | None]:
        """See :class:`~rllib_agentic.advantages.estimator.TokenPenaltyEstimator`."""
        returns: dict[int, Floats] = {}
        silent: set[int] = set()
        for group in reward_groups(trajectories):
            mean = math.fsum(group.rewards) / len(group.rewards)
            flat = group.is_flat(self.tolerance)
            for position, reward in zip(group.members, group.rewards, strict=True):
                trajectory = trajectories[position]
                if self.baseline == "none":
                    rewards = token_rewards(trajectory)
                    cost = None if penalties is None else penalties[position]
                    returns[position] = discounted_sums(rewards if cost is None else rewards - cost, self.gamma)
                else:
                    returns[position] = np.full(trajectory.num_action_tokens, 0.0 if flat else reward - mean)
                    silent.update([position] if flat else [])
        result: list[Advantages | None] = [None] * len(trajectories)
        if not returns:
            return result
        whitened = whiten(np.concatenate(list(returns.values())))
        ends = np.cumsum([len(part) for part in returns.values()])[:-1]
        for position, part in zip(returns, np.split(whitened, ends), strict=True):
            part = np.zeros_like(part) if position in silent else part
            result[position] = by_turn(part, trajectories[position])
        return result
