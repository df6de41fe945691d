"""Bi-level GAE: turns first, then the tokens inside each turn."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from rllib_agentic.advantages.critic import CriticTargets, ValuedActions
from rllib_agentic.advantages.gae import gae
from rllib_agentic.components import Settings


class BiLevelGAEEstimator(Settings):
    """Turn-level, then token-level advantages (RAGEN's bi-level GAE; VAGEN, arXiv:2510.16907).

    ``V_k`` is the critic's value before the *last* sampled token of turn k, ``r_k`` the turn's reward::

        turns:   A_k = r_k + turn_gamma * V_{k+1} - V_k + turn_gamma * turn_lam * A_{k+1}
        tokens:  the last token of turn k gets A_k; the ones before it, inside the turn,
                 A_t = gamma * V_{t+1} - V_t + gamma * lam * A_{t+1}

    So a turn is credited with what follows it at the turns' discount, however many tokens it has, and tokens share
    that credit at their own discount. Every turn is a step, also one without reward (RAGEN's code finds turns by
    rewards other than 0 and loses these). With all four factors 1 it equals token-level GAE.

    Two turns of two tokens, V = 0.2, 0.5 | 0.4, 0.6, rewards 0 and 1, the task ended; turn_gamma 0.9, turn_lam 1,
    gamma 1, lam 0.5::

        A_1 = 1 - 0.6                     =  0.4
        A_0 = 0 + 0.9 * 0.6 - 0.5 + 0.9 * 0.4 =  0.4
        first token of turn 0: 0.5 - 0.2 + 0.5 * 0.4 = 0.5
        first token of turn 1: 0.6 - 0.4 + 0.5 * 0.4 = 0.4

        advantages  0.5  0.4 | 0.4  0.4        returns = advantages + V:  0.7  0.9 | 0.8  1.0

    Example:
        The same in code.

        >>> actions = ValuedActions(np.array([0.2, 0.5, 0.4, 0.6]), np.array([0.0, 0, 0, 1]), np.array([0, 0, 1, 1]))
        >>> found = BiLevelGAEEstimator(turn_gamma=0.9, lam=0.5).on_values(actions)
        >>> found.advantages.round(3).tolist(), found.returns.round(3).tolist()
        ([0.5, 0.4, 0.4, 0.4], [0.7, 0.9, 0.8, 1.0])

    Attributes:
        turn_gamma: discount a turn.
        turn_lam: lambda over turns.
        gamma: discount a token inside a turn.
        lam: lambda inside a turn.
        whiten: whiten advantages over the sampled tokens of the batch.
    """

    type: ClassVar[str] = "bi_level_gae"

    turn_gamma: float = Field(default=0.95, ge=0, le=1)
    turn_lam: float = Field(default=1.0, ge=0, le=1)
    gamma: float = Field(default=1.0, ge=0, le=1)
    lam: float = Field(default=1.0, ge=0, le=1)
    whiten: bool = True

    def on_values(self, actions: ValuedActions) -> CriticTargets:
        """See :class:`~rllib_agentic.advantages.critic.CriticEstimator`."""
        starts = actions.turn_starts
        lasts = np.append(starts[1:], len(actions.values)) - 1
        turns = gae(
            actions.values[lasts],
            np.add.reduceat(actions.rewards, starts),
            self.turn_gamma,
            self.turn_lam,
            bootstrap=actions.bootstrap,
        )
        rewards = np.zeros(len(actions.values))
        rewards[lasts] = turns + actions.values[lasts]
        advantages = np.concatenate(
            [
                gae(actions.values[a : z + 1], rewards[a : z + 1], self.gamma, self.lam)
                for a, z in zip(starts, lasts, strict=True)
            ]
        )
        return CriticTargets(advantages, advantages + actions.values, np.ones(len(advantages), np.bool_))
