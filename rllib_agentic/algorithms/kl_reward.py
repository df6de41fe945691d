"""The divergence from the reference policy, taken from the reward of each sampled token."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from ray.rllib.core.learner.learner_group import LearnerGroup

from rllib_agentic.advantages.action_tokens import Floats
from rllib_agentic.learner.settings import KLSettings
from rllib_agentic.losses import kl_estimate
from rllib_agentic.trajectory.row import Row


def kl_penalties(rows: Sequence[Row], learners: LearnerGroup, settings: KLSettings) -> list[Floats]:
    """``coefficient * kl_t`` at the sampled tokens of each row, float64 ``[A_row]``.

    The policy is the one that sampled, with the logprobs of the engine; the learners score the reference.
    """
    results = learners.foreach_learner(lambda learner: learner.reference_logprobs(rows))
    failed = [r for r in results if not r.ok]
    if failed:
        raise failed[0].get()
    reference = {number: logprobs for r in results for number, logprobs in r.get().items()}
    return [
        settings.coefficient * _divergence(row.logprobs[row.action_mask], reference[number], settings)
        for number, row in enumerate(rows)
    ]


def take_from_rewards(row: Row, penalties: Floats) -> Row:
    """The row with each sampled token's penalty taken from its reward: what a critic's estimator reads."""
    rewards = row.rewards.copy()
    rewards[row.action_mask] -= penalties.astype(np.float32)
    return dataclasses.replace(row, rewards=rewards)


def _divergence(logprobs: npt.ArrayLike, reference: npt.ArrayLike, settings: KLSettings) -> Floats:
    policy, frozen = (torch.from_numpy(np.asarray(x, np.float64)) for x in (logprobs, reference))
    return kl_estimate(policy, frozen, settings.chosen_estimator).numpy()
