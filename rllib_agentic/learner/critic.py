"""Advantages and value targets from the module's critic, before the first optimizer step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist

from rllib_agentic.advantages import CriticEstimator, Moments, targets_on_rows
from rllib_agentic.learner.micro_batches import Floats, split_by_tokens
from rllib_agentic.trajectory.row import Row


@torch.no_grad()
def row_values(
    rows: Sequence[Row],
    numbers: Sequence[int],
    values_of: Callable[[torch.Tensor], torch.Tensor],
    *,
    max_tokens: int,
    device: torch.device | str,
) -> dict[int, Floats]:
    """The critic's value of every prefix of the rows: entry ``t`` stands for the context up to and with token ``t``.

    Args:
        rows: all rows that ``numbers`` may name.
        numbers: which to value.
        values_of: token ids ``[B, T]``, padded on the right, to values ``[B, T]``.
        max_tokens: budget a forward pass.
        device: where the model is.
    """
    found: dict[int, Floats] = {}
    for group in split_by_tokens([len(rows[i]) for i in numbers], max_tokens):
        chosen = [numbers[g] for g in group]
        ids = np.zeros((len(chosen), len(rows[chosen[0]])), np.int64)
        for b, i in enumerate(chosen):
            ids[b, : len(rows[i])] = rows[i].token_ids
        values = values_of(torch.from_numpy(ids).to(device)).double().cpu().numpy()
        found |= {i: values[b, : len(rows[i])] for b, i in enumerate(chosen)}
    return found


def critic_columns(
    rows: Sequence[Row],
    values: Mapping[int, Floats],
    estimator: CriticEstimator,
    owned: Collection[int],
    *,
    distributed: bool,
) -> dict[str, dict[int, Floats]]:
    """Columns ``advantages``, ``returns``, ``target_mask`` and ``old_values`` at the action tokens of valued rows.

    Whitening counts every row of the batch once, whichever learners train it: each learner contributes the moments
    of the rows that it owns, and all whiten with the merged ones.

    Args:
        rows: all rows.
        values: row number to values ``[T]``, for whole trajectories.
        estimator: makes advantages from values.
        owned: the numbers whose moments this learner contributes.
        distributed: whether there are other learners to merge with.
    """
    merged = Moments()

    def keep(moments: Moments) -> Moments:
        nonlocal merged
        merged = _merge_over_learners(moments) if distributed else moments
        return merged

    mine = [i for i in values if i in owned]
    if estimator.whiten:
        targets_on_rows(estimator, [rows[i] for i in mine], [values[i] for i in mine], keep)
    targets = targets_on_rows(estimator, [rows[i] for i in values], list(values.values()), lambda _: merged)
    columns: dict[str, dict[int, Floats]] = {"advantages": {}, "returns": {}, "target_mask": {}, "old_values": {}}
    for i, target in zip(values, targets, strict=True):
        mask = rows[i].action_mask
        columns["advantages"][i] = target.advantages[mask]
        columns["returns"][i] = target.returns[mask]
        columns["target_mask"][i] = target.target_mask[mask].astype(np.float32)
        columns["old_values"][i] = values[i][:-1][mask[1:]]
    return columns


def _merge_over_learners(moments: Moments) -> Moments:
    parts: list[Moments | None] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, moments)
    merged = Moments()
    for part in parts:
        merged = merged.merge(part) if part is not None else merged
    return merged
