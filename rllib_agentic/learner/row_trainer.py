"""Optimizer steps over rows: the learner without RLlib around it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from rllib_agentic.diagnostics import CrossSample
from rllib_agentic.learner.cross_scores import cross_scores
from rllib_agentic.learner.gradients import clip_by_global_norm, collect_gradients, sum_over_learners
from rllib_agentic.learner.micro_batches import Floats, make_micro_batches, trained_length
from rllib_agentic.learner.objective import Objective
from rllib_agentic.learner.preparation import Columns, columns_before_training, pair_columns, sequence_log_ratios
from rllib_agentic.learner.report import LearnerReport, Tally
from rllib_agentic.learner.schedule import learning_rate
from rllib_agentic.learner.scoring import Scorer, score_rows
from rllib_agentic.learner.settings import LearnerSettings, LearnerSetup
from rllib_agentic.learner.train_batch import Minibatch, TrainBatch
from rllib_agentic.trajectory.row import Row

CRITIC_PARAMETERS = ("value_head.", "critic_model.")
"""How the names of the parameters begin that belong to the critic alone."""


class RowTrainer:
    """Trains a policy on the optimizer steps of a :class:`~rllib_agentic.learner.train_batch.TrainBatch`.

    Args:
        policy: scores rows under the trained module.
        reference: scores them under the frozen one, or None.
        optimizer: over the parameters to train; see :func:`make_optimizer`.
        setup: settings, loss, temperature, critic.
        distributed: whether other processes of the default process group train other shares of the same plans.
    """

    def __init__(
        self,
        policy: Scorer,
        reference: Scorer | None,
        optimizer: torch.optim.Optimizer,
        setup: LearnerSetup,
        *,
        distributed: bool = False,
    ) -> None:
        self.optimizer_steps = 0
        self._policy = policy
        self._reference = reference
        self._optimizer = optimizer
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._parts = _clipped_together(optimizer)
        self._setup = setup
        self._objective = Objective(setup.loss, setup.settings)
        self._distributed = distributed

    def train(self, batch: TrainBatch) -> LearnerReport:
        """Run all optimizer steps of a plan, on this process's share of its rows.

        Args:
            batch: the whole plan, the same on every process.
        """
        started = time.perf_counter()
        rank, world_size = (dist.get_rank(), dist.get_world_size()) if self._distributed else (0, 1)
        share, tally = batch.shard(rank, world_size), Tally()
        tally.add("trained_tokens", 0.0)
        columns = columns_before_training(
            share,
            batch.owned_by(rank, world_size),
            self._setup,
            self._policy,
            self._reference,
            tally,
            distributed=self._distributed,
        )
        norms = [
            self._step(share.rows, minibatch, columns, tally, first=number == 0)
            for number, minibatch in enumerate(share.minibatches)
        ]
        taken = [norm for norm in norms if math.isfinite(norm)]
        tally.shared = {
            "optimizer_steps": float(len(taken)),
            "skipped_steps": float(len(norms) - len(taken)),
            "lifetime_optimizer_steps": float(self.optimizer_steps),
            "lr": float(self._optimizer.param_groups[0]["lr"]),
        }
        if taken:
            tally.shared |= {"grad_norm": sum(taken) / len(taken), "grad_norm_max": max(taken)}
        return tally.report(time.perf_counter() - started)

    def reference_logprobs(self, rows: Sequence[Row], numbers: Sequence[int]) -> dict[int, Floats]:
        """Logprobs of the action tokens of the numbered rows under the frozen policy, row number to ``[A_row]``."""
        if self._reference is None:
            raise RuntimeError("RowTrainer: no reference policy: learner.kl.coefficient is 0, the loss needs none")
        return score_rows(self._reference, rows, numbers, max_tokens=self._setup.settings.max_tokens_per_micro_batch)

    def cross_scores(self, sample: CrossSample, prompts: Sequence[int]) -> dict[int, Floats]:
        """Log-probabilities of the sample's responses under some of its prompts, by the policy as it is now."""
        return cross_scores(self._policy, sample, prompts, max_tokens=self._setup.settings.max_tokens_per_micro_batch)

    def change_setup(self, setup: LearnerSetup) -> None:
        """Train under other settings from the next plan on; what was made from the old ones stays."""
        self._setup = setup
        self._objective = Objective(setup.loss, setup.settings)

    def accumulate(
        self, rows: Sequence[Row], minibatch: Minibatch, columns: Columns, tally: Tally, *, first: bool
    ) -> None:
        """Add the gradient of (a share of) one optimizer step to the parameters; no step is taken.

        Args:
            rows: all rows of the plan.
            minibatch: rows and weights of the step.
            columns: see :mod:`~rllib_agentic.learner.preparation`.
            tally: takes the metrics.
            first: whether the policy is still the one that sampled. Recomputed old logprobs are then the current
                ones, so that every ratio is exactly 1.
        """
        settings, numbers = self._setup.settings, minibatch.rows.tolist()
        if first and settings.recompute_old_logprobs:
            columns = {name: by_row for name, by_row in columns.items() if name != "old_logprobs"}
        columns = columns | sequence_log_ratios(rows, numbers, columns.get("old_logprobs"), self._setup, self._policy)
        if self._setup.loss.pairwise:
            columns |= pair_columns(rows, numbers, columns["reference_logprobs"], self._setup, self._policy, tally)
        micro_batches = make_micro_batches(
            rows,
            numbers,
            minibatch.weights,
            max_tokens=settings.max_tokens_per_micro_batch,
            columns=columns,
            device=self._policy.device,
        )
        compare_with_engine = first and self._setup.loss.reads_old_logprobs and not tally.mismatch
        train_policy = self._setup.critic is None or self.optimizer_steps >= settings.value.warmup_steps
        with self._dropout():
            for batch in micro_batches:
                scores = self._policy(batch, "gradient" if settings.entropy_coefficient else "value")
                loss = self._objective(batch, scores, tally, train_policy=train_policy)
                if loss.requires_grad:  # not where every token was forced
                    loss.backward()
                if compare_with_engine:
                    difference = scores.logprobs.detach() - batch.columns["engine_logprobs"]
                    tally.mismatch.append(difference[batch.action_mask])
        tally.add("micro_batches", float(len(micro_batches)))
        tally.add("row_tokens", float(sum(trained_length(rows[i]) for i in numbers)))

    @contextlib.contextmanager
    def _dropout(self) -> Iterator[None]:
        """Dropout before the adapters while this lasts, where it is asked for; a resumed run draws the same."""
        seed, module = self._setup.dropout_seed, self._policy.module
        if seed is None or not isinstance(module, nn.Module):
            yield
            return
        rank = dist.get_rank() if self._distributed else 0
        (drawn,) = np.random.SeedSequence([seed, self.optimizer_steps, rank]).generate_state(1)
        trains, device = module.training, self._policy.device
        with torch.random.fork_rng([device.index or 0] if device.type == "cuda" else []):
            torch.manual_seed(int(drawn))
            module.train()
            try:
                yield
            finally:
                module.train(trains)

    def _step(self, rows: Sequence[Row], minibatch: Minibatch, columns: Columns, tally: Tally, *, first: bool) -> float:
        """Take one step, or none where the gradient is not finite; return its norm before clipping."""
        self._optimizer.zero_grad(set_to_none=True)
        self.accumulate(rows, minibatch, columns, tally, first=first)
        gradients = collect_gradients(self._parameters)
        if self._distributed:
            sum_over_learners(gradients)
        norms = [clip_by_global_norm(collect_gradients(p), self._setup.settings.grad_clip) for p in self._parts]
        norm = math.hypot(*norms)
        if math.isfinite(norm):
            for group in self._optimizer.param_groups:
                peak = self._setup.settings.value.lr if group.get("critic") else None
                group["lr"] = learning_rate(self._setup.settings, self.optimizer_steps, peak)
            self._optimizer.step()
            self.optimizer_steps += 1
        self._optimizer.zero_grad(set_to_none=True)
        return norm


def make_optimizer(module: nn.Module, settings: LearnerSettings) -> torch.optim.AdamW:
    """AdamW over the module's trainable parameters; weight decay on matrices, not on norms and biases.

    Where ``settings.value.lr`` is given, the critic's own parameters are groups of their own, marked as ``critic``.
    """
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    critic = {name for name in trained if settings.value.lr is not None and name.startswith(CRITIC_PARAMETERS)}
    groups = []
    for is_critic in (False, True):
        mine = [p for name, p in trained.items() if (name in critic) == is_critic]
        if mine:
            peak = settings.value.lr if is_critic else None
            shared = {"lr": learning_rate(settings, 0, peak), "critic": is_critic}
            groups += [
                {"params": [p for p in mine if p.ndim >= 2], "weight_decay": settings.weight_decay} | shared,
                {"params": [p for p in mine if p.ndim < 2], "weight_decay": 0.0} | shared,
            ]
    return torch.optim.AdamW(groups, lr=learning_rate(settings, 0), betas=settings.betas, eps=settings.eps, fused=True)


def _clipped_together(optimizer: torch.optim.Optimizer) -> list[list[nn.Parameter]]:
    """The parameters whose gradients have one norm: the policy's, and apart from them the critic's own."""
    parts: dict[bool, list[nn.Parameter]] = {}
    for group in optimizer.param_groups:
        parts.setdefault(bool(group.get("critic")), []).extend(group["params"])
    return list(parts.values())
