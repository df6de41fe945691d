"""Step-level GAE: a turn is a step."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from rllib_agentic.advantages.critic import CriticTargets, ValuedActions
from rllib_agentic.advantages.gae import gae
from rllib_agentic.components import Settings


class StepGAEEstimator(Settings):
    """GAE over turns, the steps of the agentic MDP.

    Agent-R1, arXiv:2511.14460, whose step-level MDP has a turn as its action::

        delta_k = R_k + gamma * V_{k+1} - V_k
        A_k     = delta_k + gamma * lam * A_{k+1}

    ``V_k`` is the critic's value at the first sampled token of turn k (before the turn is spoken), ``R_k`` the turn's
    reward. All tokens of a turn get A_k; whitening counts each turn once, whatever its length; the critic is trained
    at the first token of each turn, towards ``A_k + V_k``.

    Two turns of 3 and 2 tokens, rewards 0 and 1, gamma = lam = 0.9, the task ended; V at the first tokens 0.5 and 0.6::

        A_1 = 1 + 0 - 0.6               =  0.4
        A_0 = 0 + 0.9 * 0.6 - 0.5 + 0.81 * 0.4 = 0.04 + 0.324 = 0.364

        token        0      0      0      1      1
        advantage  0.364  0.364  0.364   0.4    0.4
        target     0.864    .      .     1.0     .

    Example:
        The same in code; the values at later tokens of a turn are never read.

        >>> values, rewards = np.array([0.5, 7, 7, 0.6, 7]), np.array([0.0, 0, 0, 0, 1])
        >>> actions = ValuedActions(values, rewards, np.array([0, 0, 0, 1, 1]))
        >>> found = StepGAEEstimator(gamma=0.9, lam=0.9).on_values(actions)
        >>> found.advantages.round(3).tolist()
        [0.364, 0.364, 0.364, 0.4, 0.4]
        >>> found.returns[found.target_mask].round(3).tolist()
        [0.864, 1.0]

    Attributes:
        gamma: discount a turn.
        lam: lambda.
        whiten: whiten advantages over the turns of the batch.
    """

    type: ClassVar[str] = "step_gae"

    gamma: float = Field(default=1.0, ge=0, le=1)
    lam: float = Field(default=1.0, ge=0, le=1)
    whiten: bool = True

    def on_values(self, actions: ValuedActions) -> CriticTargets:
        """See :class:`~rllib_agentic.advantages.critic.CriticEstimator`."""
        starts = actions.turn_starts
        values = actions.values[starts]
        rewards = np.add.reduceat(actions.rewards, starts)
        advantages = gae(values, rewards, self.gamma, self.lam, bootstrap=actions.bootstrap)
        lengths = np.diff(starts, append=len(actions.values))
        first = np.zeros(len(actions.values), np.bool_)
        first[starts] = True
        return CriticTargets(np.repeat(advantages, lengths), np.repeat(advantages + values, lengths), first)
