"""What must be known before the first optimizer step, while the policy is still the one that sampled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rllib_agentic.learner.critic import critic_columns, row_values
from rllib_agentic.learner.micro_batches import Floats
from rllib_agentic.learner.report import Tally
from rllib_agentic.learner.scoring import Scorer, score_rows
from rllib_agentic.learner.settings import LearnerSetup
from rllib_agentic.learner.train_batch import TrainBatch
from rllib_agentic.trajectory.row import Row

Columns = dict[str, dict[int, Floats]]
"""Name to row number to values at the row's action tokens, ``[A_row]``."""


def columns_before_training(
    share: TrainBatch,
    owned: frozenset[int],
    setup: LearnerSetup,
    policy: Scorer,
    reference: Scorer | None,
    tally: Tally,
    *,
    distributed: bool,
) -> Columns:
    """Old logprobs, importance correction, reference logprobs, advantages and returns of a critic: where asked for.

    Where old logprobs are recomputed and there is one optimizer step only, they are left out: the step's own logprobs
    are the old ones.

    Args:
        share: this learner's part of the plan.
        owned: the rows that this learner reports on.
        setup: what is asked for.
        policy: the policy as it is now.
        reference: the frozen policy, or None.
        tally: takes the mismatch between learner and engine.
        distributed: whether there are other learners.
    """
    settings, rows = setup.settings, share.rows
    budget = settings.max_tokens_per_micro_batch
    numbers = sorted({i for minibatch in share.minibatches for i in minibatch.rows.tolist()})
    engine = {i: rows[i].logprobs[rows[i].action_mask] for i in numbers}
    columns: Columns = {}
    if not settings.recompute_old_logprobs:
        columns["old_logprobs"] = engine
    elif len(share.minibatches) > 1 or settings.importance.mode != "off":
        own = score_rows(policy, rows, numbers, max_tokens=budget)
        columns["old_logprobs"] = own
        difference = {i: own[i] - engine[i] for i in numbers}
        tally.mismatch += [torch.from_numpy(difference[i]) for i in numbers if i in owned]
        if settings.importance.mode != "off":
            weights = settings.importance.weights(
                [difference[i] for i in numbers], [rows[i].trajectory for i in numbers]
            )
            columns["importance"] = dict(zip(numbers, weights, strict=True))
    if reference is not None and settings.kl.place == "loss":
        columns["reference_logprobs"] = score_rows(reference, rows, numbers, max_tokens=budget)
    if setup.critic is not None:
        values = row_values(rows, numbers, policy.values, max_tokens=budget, device=policy.device)
        columns |= critic_columns(rows, values, setup.critic, owned, distributed=distributed)
    return columns


def sequence_log_ratios(
    rows: Sequence[Row],
    numbers: Sequence[int],
    old_logprobs: dict[int, Floats] | None,
    setup: LearnerSetup,
    policy: Scorer,
) -> Columns:
    """Column ``sequence_log_ratio``: each row gets the mean log-ratio of its trajectory, all its rows together.

    Empty where the loss looks at tokens alone, or where every trajectory of the step is one row.

    Args:
        rows: all rows.
        numbers: this learner's rows of one optimizer step.
        old_logprobs: None where the current policy is the old one.
        setup: names the loss.
        policy: the policy as it is now.
    """
    trajectories = [rows[i].trajectory for i in numbers]
    if not setup.loss.sequence_level or len(set(trajectories)) == len(numbers):
        return {}
    if old_logprobs is None:
        return {"sequence_log_ratio": {i: np.zeros(int(rows[i].action_mask.sum())) for i in numbers}}
    now = score_rows(policy, rows, numbers, max_tokens=setup.settings.max_tokens_per_micro_batch)
    parts: dict[int, list[Floats]] = {}
    for i, trajectory in zip(numbers, trajectories, strict=True):
        parts.setdefault(trajectory, []).append(now[i] - old_logprobs[i])
    mean = {trajectory: float(np.concatenate(differences).mean()) for trajectory, differences in parts.items()}
    return {"sequence_log_ratio": {i: np.full(len(now[i]), mean[rows[i].trajectory]) for i in numbers}}
