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
from rllib_agentic.losses import DPO, dpo_loss
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
    if not setup.loss.reads_old_logprobs:
        pass  # nor did an engine of ours sample these tokens
    elif not settings.recompute_old_logprobs:
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
    if reference is not None and (setup.loss.needs_reference or settings.kl.place == "loss"):
        columns["reference_logprobs"] = score_rows(reference, rows, numbers, max_tokens=budget)
    if setup.critic is not None:
        values = row_values(rows, numbers, policy.values, max_tokens=budget, device=policy.device)
        columns |= critic_columns(rows, values, setup.critic, owned, distributed=distributed)
    return columns


def pair_columns(
    rows: Sequence[Row],
    numbers: Sequence[int],
    reference_logprobs: dict[int, Floats],
    setup: LearnerSetup,
    policy: Scorer,
    tally: Tally,
) -> Columns:
    """Columns ``advantages`` and ``pair_loss`` of :class:`~rllib_agentic.losses.policy.DPO`, for one optimizer step.

    Rows with one ``trajectory`` number are a pair: those with positive advantages its better trajectory, the others
    its worse one.

    Args:
        rows: all rows.
        numbers: this learner's rows of the step, whole pairs.
        reference_logprobs: row number to ``[A_row]``.
        setup: names the loss.
        policy: the policy as it is now.
        tally: takes how far, and how often, the policy prefers the better one more than the reference does.
    """
    loss = setup.loss
    if not isinstance(loss, DPO) or not numbers:
        return {}
    now = score_rows(policy, rows, numbers, max_tokens=setup.settings.max_tokens_per_micro_batch)
    sign = {i: 1 if rows[i].advantages.any() and rows[i].advantages.max() > 0 else -1 for i in numbers}
    pairs = sorted({rows[i].trajectory for i in numbers})
    place = {pair: at for at, pair in enumerate(pairs)}
    sums = {key: np.zeros(len(pairs)) for key in ((1, "now"), (-1, "now"), (1, "reference"), (-1, "reference"))}
    tokens = np.zeros(len(pairs))
    for i in numbers:
        at = place[rows[i].trajectory]
        sums[sign[i], "now"][at] += now[i].sum(dtype=np.float64)
        sums[sign[i], "reference"][at] += reference_logprobs[i].sum(dtype=np.float64)
        tokens[at] += len(now[i])
    chosen, rejected, reference_chosen, reference_rejected = (torch.from_numpy(values) for values in sums.values())
    chosen.requires_grad_(True)
    found = dpo_loss(chosen, rejected, reference_chosen, reference_rejected, loss.beta, loss.label_smoothing)
    (slopes,) = torch.autograd.grad(found.loss.sum(), chosen)  # along the worse one's sum it is the opposite
    tally.add("preference_margin", float(found.margin.detach().sum()))
    tally.add("preference_accuracy", float((found.margin > 0).sum()))
    for name in ("preference_margin", "preference_accuracy"):
        tally.counts[name] = tally.counts.get(name, 0.0) + len(pairs)
    shares = found.loss.detach().numpy() / tokens
    at_pair = {i: place[rows[i].trajectory] for i in numbers}
    return {
        "advantages": {i: np.full(len(now[i]), -sign[i] * float(slopes[at_pair[i]])) for i in numbers},
        "pair_loss": {i: np.full(len(now[i]), shares[at_pair[i]]) for i in numbers},
    }


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
