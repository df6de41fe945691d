"""Generalised advantage estimation over sampled tokens."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rllib_agentic.advantages.critic import CriticTargets, Floats, ValuedActions
from rllib_agentic.components import Settings


class GAEEstimator(Settings):
    """Token-level GAE (Schulman et al. 2016, arXiv:1506.02438, equation 16) across all turns of a trajectory.

    A step is a *sampled* token. Observation tokens take part in nothing: from the last token of a turn the recursion
    goes straight to the first token of the next, one discount apart::

        token      A     A   O  O  O   A     A           critic's V before each sampled token
        V         0.2   0.3  .  .  .  0.4   0.1
        reward     0     0   .  .  .   0     1           gamma = lambda = 1, the task ended
        advantage 0.8   0.7  .  .  .  0.6   0.9          = 1 - V

    Where the task ended, nothing follows the last token; where a limit ended the episode, the critic's value after it
    stands in for the future.

    Attributes:
        gamma: discount a sampled token.
        lam: lambda, the weight of longer estimates.
        whiten: whiten advantages over the sampled tokens of the batch, as PPO does.
    """

    type: ClassVar[str] = "gae"

    gamma: float = Field(default=1.0, ge=0, le=1)
    lam: float = Field(default=1.0, ge=0, le=1)
    whiten: bool = True

    def on_values(self, actions: ValuedActions) -> CriticTargets:
        """See :class:`~rllib_agentic.advantages.critic.CriticEstimator`."""
        advantages = gae(actions.values, actions.rewards, self.gamma, self.lam, bootstrap=actions.bootstrap)
        return CriticTargets(advantages, advantages + actions.values, np.ones(len(advantages), np.bool_))


def gae(values: npt.ArrayLike, rewards: npt.ArrayLike, gamma: float, lam: float, *, bootstrap: float = 0.0) -> Floats:
    """``A_t = delta_t + gamma * lam * A_{t+1}`` with ``delta_t = r_t + gamma * V_{t+1} - V_t``.

    Args:
        values: ``[S]``, the value before each step.
        rewards: ``[S]``, what each step earned.
        gamma: discount a step.
        lam: lambda.
        bootstrap: the value after the last step: 0 where the task ended.

    Returns:
        float64 ``[S]``.

    Example:
        >>> gae([0.5, 0.6], [0, 0], 0.9, 0.95).round(4).tolist()
        [-0.473, -0.6]
        >>> gae([0.5, 0.6], [0, 0], 0.9, 0.95, bootstrap=0.8).round(4).tolist()
        [0.1426, 0.12]
    """
    steps = zip(np.asarray(values, np.float64).tolist(), np.asarray(rewards, np.float64).tolist(), strict=True)
    advantages: list[float] = []
    after, advantage = bootstrap, 0.0
    for value, reward in reversed(list(steps)):
        advantage = reward + gamma * after - value + gamma * lam * advantage
        advantages.append(advantage)
        after = value
    return np.array(advantages[::-1], np.float64)
