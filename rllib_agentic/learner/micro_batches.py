"""From rows to padded tensors, a bounded number of tokens at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rllib_agentic.losses.logprobs import LegalIndex
from rllib_agentic.trajectory.row import Row

Floats = npt.NDArray[np.floating]

PASS_TOKENS = 128
"""What one more pass costs beside its tokens, in tokens: about 60 for ``tiny`` on a CPU core, more on a GPU."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows of one forward pass, padded on the right. Padding is never read: attention is causal.

    ::

        token_ids    S U A A O A     the model reads S U A A O; its states at U, A, O, A score the tokens after them
        action_mask  0 0 1 1 0 1
        S U A . . .                  right padding: the mask is false there

    Attributes:
        rows: which rows these are, in the caller's numbering.
        token_ids: int64 ``[B, T]``, each row up to its last action token.
        action_mask: bool ``[B, T]``.
        weights: float64 ``[B]``.
        trajectory: int64 ``[B]``.
        columns: name to ``[B, T]``, 0 where masked: ``advantages``, ``engine_logprobs`` and what else was given.
        legal: the legal-token mask of the action tokens in row-major order, or None.
    """

    rows: tuple[int, ...]
    token_ids: Tensor
    action_mask: Tensor
    weights: Tensor
    trajectory: Tensor
    columns: Mapping[str, Tensor]
    legal: LegalIndex | None = None


def split_by_tokens(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Group rows of similar length so that rows times longest row stays within the budget, longest first.

    Of all ways to cut the rows in order of length, this one has the fewest padded tokens, where every group counts as
    ``PASS_TOKENS`` more: a budget that would take rows of very different lengths together is not filled up.

    A row above the budget is a group of its own. Every row is in exactly one group.

    Example:
        >>> split_by_tokens([3, 10, 4, 2], max_tokens=12)
        [[1], [2, 0, 3]]
        >>> split_by_tokens([2000, 300, 1900, 310], max_tokens=10_000)
        [[0, 2], [3, 1]]
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    cost, start_of_last = [0], [0]  # of the first n rows in order: the least cost, and where its last group begins
    for end in range(1, len(order) + 1):
        best, start = math.inf, end - 1
        for first in range(end - 1, -1, -1):
            padded = (end - first) * lengths[order[first]]
            if padded > max_tokens and first < end - 1:
                break
            if cost[first] + padded + PASS_TOKENS < best:
                best, start = cost[first] + padded + PASS_TOKENS, first
        cost.append(int(best))
        start_of_last.append(start)
    groups: list[list[int]] = []
    end = len(order)
    while end:
        groups.append(order[start_of_last[end] : end])
        end = start_of_last[end]
    return groups[::-1]


def trained_length(row: Row) -> int:
    """Tokens up to and including the last action token: what comes after changes nothing."""
    return int(row.action_mask.nonzero()[0][-1]) + 1


def make_micro_batches(
    rows: Sequence[Row],
    numbers: Sequence[int],
    weights: Sequence[float] | npt.NDArray[np.float64],
    *,
    max_tokens: int,
    columns: Mapping[str, Mapping[int, Floats]] | None = None,
    device: torch.device | str = "cpu",
) -> list[MicroBatch]:
    """Pad and stack rows under a token budget.

    Args:
        rows: all rows that ``numbers`` may name.
        numbers: the rows to take.
        weights: one for each of ``numbers``.
        max_tokens: budget a micro-batch, padding included.
        columns: further values at action tokens, name to row number to ``[A_row]``.
        device: where the tensors go.

    Raises:
        ValueError: a sampled token is illegal under its own legal-token mask.
    """
    lengths = [trained_length(rows[i]) for i in numbers]
    batches = []
    for group in split_by_tokens(lengths, max_tokens):
        chosen = [numbers[g] for g in group]
        batches.append(
            _collate(rows, chosen, [float(weights[g]) for g in group], lengths[group[0]], columns or {}, device)
        )
    return batches


def _collate(
    rows: Sequence[Row],
    chosen: Sequence[int],
    weights: Sequence[float],
    longest: int,
    columns: Mapping[str, Mapping[int, Floats]],
    device: torch.device | str,
) -> MicroBatch:
    token_ids = np.zeros((len(chosen), longest), np.int64)
    mask = np.zeros((len(chosen), longest), np.bool_)
    for b, i in enumerate(chosen):
        length = trained_length(rows[i])
        token_ids[b, :length] = rows[i].token_ids[:length]
        mask[b, :length] = rows[i].action_mask[:length]
    given = {
        "advantages": [rows[i].advantages[rows[i].action_mask] for i in chosen],
        "engine_logprobs": [rows[i].logprobs[rows[i].action_mask] for i in chosen],
    } | {name: [by_row[i] for i in chosen] for name, by_row in columns.items()}
    return MicroBatch(
        rows=tuple(chosen),
        token_ids=torch.from_numpy(token_ids).to(device),
        action_mask=torch.from_numpy(mask).to(device),
        weights=torch.tensor(weights, dtype=torch.float64, device=device),
        trajectory=torch.tensor([rows[i].trajectory for i in chosen], device=device),
        columns={name: torch.from_numpy(_spread(parts, mask)).to(device) for name, parts in given.items()},
        legal=_legal_index([rows[i] for i in chosen], token_ids[mask], device),
    )


def _spread(parts: Sequence[Floats], mask: npt.NDArray[np.bool_]) -> Floats:
    values = np.concatenate(parts)
    dense = np.zeros(mask.shape, values.dtype)
    dense[mask] = values
    return dense


def _legal_index(rows: Sequence[Row], targets: npt.NDArray[np.int64], device: torch.device | str) -> LegalIndex | None:
    if all(row.legal_tokens is None for row in rows):
        return None
    counts = np.concatenate(
        [
            np.zeros(int(row.action_mask.sum()), np.int64) if row.legal_tokens is None
            else np.diff(row.legal_tokens.offsets).astype(np.int64)
            for row in rows
        ]
    )  # fmt: skip
    ids = np.concatenate([row.legal_tokens.ids for row in rows if row.legal_tokens is not None]).astype(np.int64)
    position = np.repeat(np.arange(len(counts)), counts)
    found = np.bincount(position[ids == targets[position]], minlength=len(counts)) > 0
    illegal = ~found & (counts > 0)
    if illegal.any():
        at = int(illegal.argmax())
        raise ValueError(
            f"make_micro_batches: token {targets[at]} was sampled, but is none of the {counts[at]} legal tokens of its "
            f"position; the legal-token mask does not belong to these tokens"
        )
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return LegalIndex(torch.from_numpy(offsets).to(device), torch.from_numpy(ids).to(device))
