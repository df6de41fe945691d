"""The loss of a micro-batch: policy, divergence, entropy and value terms under one set of weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rllib_agentic.learner.micro_batches import MicroBatch
from rllib_agentic.learner.report import Tally
from rllib_agentic.learner.scoring import Scores
from rllib_agentic.learner.settings import LearnerSettings
from rllib_agentic.losses import LossInputs, PolicyLoss, kl_estimate, value_loss
from rllib_agentic.losses.masked import masked_mean, masked_sum


@dataclass(frozen=True, slots=True)
class Objective:
    """Adds up what a config asks for.

    ``sum_b weight_b sum_t (w_t policy_t + kl.coefficient kl_t - entropy_coefficient H_t + value.coefficient value_t)``
    over action tokens; ``w_t`` is the importance correction.

    Columns read from a micro-batch: ``advantages``, ``engine_logprobs``; where they are there ``old_logprobs`` (else
    the current ones, so that the ratio is exactly 1), ``sequence_log_ratio``, ``pair_loss``, ``importance``,
    ``reference_logprobs``, and for the critic ``old_values``, ``returns``, ``target_mask``.
    """

    loss: PolicyLoss
    settings: LearnerSettings

    def __call__(self, batch: MicroBatch, scores: Scores, tally: Tally, *, train_policy: bool = True) -> Tensor:
        """The loss to call ``backward`` on; 0 for a batch without action tokens."""
        columns = {name: values.to(scores.logprobs.dtype) for name, values in batch.columns.items()}
        mask, settings = batch.action_mask, self.settings
        weights = batch.weights.to(scores.logprobs.dtype)[:, None]
        total = torch.zeros_like(scores.logprobs)
        if train_policy:
            total = total + self._policy_terms(batch, scores, columns, weights, tally)
        if scores.values is not None and "returns" in columns:
            targets = mask & (columns["target_mask"] > 0)
            found = value_loss(scores.values, columns["old_values"], columns["returns"], targets, settings.value.clip)
            total = total + settings.value.coefficient * found.loss
            tally.mean("value_loss", found.loss, targets)
            tally.mean("value_clip_frac", found.clipped, targets)
            tally.mean("value_mean", scores.values, targets)
            tally.mean("return_mean", columns["returns"], targets)
        tally.add("trained_tokens", mask.sum())
        tally.mean("entropy", scores.entropies, mask)
        return masked_sum(weights * total, mask)

    def _policy_terms(
        self, batch: MicroBatch, scores: Scores, columns: dict[str, Tensor], weights: Tensor, tally: Tally
    ) -> Tensor:
        mask, settings = batch.action_mask, self.settings
        old_logprobs = columns.get("old_logprobs", scores.logprobs.detach())
        sequence = columns.get("sequence_log_ratio")
        inputs = LossInputs(
            logprobs=scores.logprobs,
            old_logprobs=old_logprobs,
            advantages=columns["advantages"],
            action_mask=mask,
            trajectory=batch.trajectory,
            sequence_log_ratio=None if sequence is None else masked_mean(sequence, mask, dim=1),
            pair_loss=columns.get("pair_loss"),
        )
        found = self.loss(inputs)
        policy = found.loss * columns["importance"] if "importance" in columns else found.loss
        total = policy
        if "reference_logprobs" in columns:
            divergence = kl_estimate(scores.logprobs, columns["reference_logprobs"], settings.kl.chosen_estimator)
            total = total + settings.kl.coefficient * divergence
            tally.mean("kl_to_reference", divergence, mask)
        if settings.entropy_coefficient:
            total = total - settings.entropy_coefficient * scores.entropies
        tally.add("policy_loss", masked_sum((weights * policy).detach().double(), mask))
        if self.loss.reads_old_logprobs:
            drift = inputs.log_ratio().detach()
            tally.mean("approx_kl", drift.exp() - 1 - drift, mask)
        for name, statistic in found.stats.items():
            if name == "ratio":
                tally.mean("ratio_mean", statistic, mask)
                tally.largest("ratio_max", statistic, mask)
            else:
                tally.mean("clip_frac" if name == "clipped" else name, statistic, mask)
        return total
