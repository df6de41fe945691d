"""Logprobs of sampled tokens, under exactly the distribution that they were sampled from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Head = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class LegalIndex:
    """The legal-token mask of A positions on the device: position ``i`` allows ``ids[offsets[i]:offsets[i + 1]]``.

    An empty range means that every token is legal; a range of one is a forced token.

    Attributes:
        offsets: int64 ``[A + 1]``.
        ids: int64 ``[E]``.
    """

    offsets: Tensor
    ids: Tensor

    def counts(self) -> Tensor:
        """How many tokens each position allows, int64 ``[A]``; 0 means all."""
        return self.offsets.diff()


class TokenLogprobs(NamedTuple):
    """What one scoring pass gives.

    Attributes:
        logprobs: ``[A]``, float32 (float64 for a float64 model).
        entropies: ``[A]``, in nats, of the masked distribution; empty where not asked for.
    """

    logprobs: Tensor
    entropies: Tensor


def token_logprobs(
    hidden_AD: Tensor,
    head: Head,
    targets_A: Tensor,
    *,
    temperature: float = 1.0,
    legal: LegalIndex | None = None,
    entropy: Literal["none", "value", "gradient"] = "value",
    max_logits: int = 2**24,
) -> TokenLogprobs:
    """Score sampled tokens without ever holding all logits.

    Positions are taken in chunks of at most ``max_logits`` logits; where there are several chunks, each one's logits
    are made again in the backward pass. Softmax and entropy are computed in at least float32. Forced tokens never
    touch the head: their logprob is exactly 0, their gradient exactly 0. At constrained positions only the head's
    rows of tokens that are legal somewhere in the chunk are multiplied.

    Args:
        hidden_AD: the hidden state *before* each sampled token, that is at position ``t - 1`` for token ``t``.
        head: hidden states ``[n, D]`` to logits ``[n, V]``.
        targets_A: int64, the sampled tokens.
        temperature: divides the logits, as it did in sampling.
        legal: the legal-token mask that sampling applied. Each target must be legal.
        entropy: whether to compute entropies, and whether the loss needs their gradient.
        max_logits: most logits alive at a time.
    """
    count = len(targets_A)
    dtype = torch.promote_types(hidden_AD.dtype, torch.float32)
    logprobs, entropies = hidden_AD.new_zeros(count, dtype=dtype), hidden_AD.new_zeros(count, dtype=dtype)
    if legal is None:
        groups = [(torch.arange(count, device=hidden_AD.device), False)]
    else:
        allowed = legal.counts()
        groups = [((allowed == 0).nonzero().squeeze(1), False), ((allowed > 1).nonzero().squeeze(1), True)]
    for positions, constrained in groups:
        if not len(positions):
            continue
        parts = []
        spans = _spans(positions, head, legal if constrained else None, max_logits)
        for span in spans:
            subset = _LegalSubset.of(legal, span, head) if constrained and legal is not None else None
            arguments = (hidden_AD[span], head, targets_A[span], subset, temperature, entropy)
            if len(spans) > 1 and torch.is_grad_enabled():
                parts.append(checkpoint(_score, *arguments, use_reentrant=False, preserve_rng_state=False))
            else:
                parts.append(_score(*arguments))
        logprobs = logprobs.index_copy(0, positions, torch.cat([part[0] for part in parts]))
        if entropy != "none":
            entropies = entropies.index_copy(0, positions, torch.cat([part[1] for part in parts]))
    return TokenLogprobs(logprobs, entropies if entropy != "none" else entropies[:0])


@dataclass(frozen=True, slots=True)
class _LegalSubset:
    """The tokens legal anywhere in a chunk, and which of them each position allows."""

    columns: Tensor | None  # int64 [U], the head's rows to multiply; None: all of them
    illegal_nU: Tensor  # bool

    @classmethod
    def of(cls, legal: LegalIndex, positions: Tensor, head: Head) -> _LegalSubset:
        counts = legal.counts()[positions]
        row = torch.repeat_interleave(torch.arange(len(positions), device=positions.device), counts)
        start = counts.cumsum(0) - counts
        entry = torch.arange(len(row), device=positions.device) + (legal.offsets[positions] - start)[row]
        ids = legal.ids[entry]
        columns: Tensor | None
        if _is_plain_linear(head):
            columns, column = ids.unique(return_inverse=True)
            width = len(columns)
        else:
            columns, column, width = None, ids, _vocabulary(head)
        illegal = torch.ones(len(positions), width, dtype=torch.bool, device=positions.device)
        illegal[row, column] = False
        return cls(columns, illegal)


def _score(
    hidden: Tensor, head: Head, targets: Tensor, subset: _LegalSubset | None, temperature: float, entropy: str
) -> tuple[Tensor, Tensor]:
    if subset is None or subset.columns is None:
        logits = head(hidden)
    else:
        logits = _columns_of(head, hidden, subset.columns)
        targets = torch.searchsorted(subset.columns, targets)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if temperature != 1.0:
        logits = logits / temperature
    if subset is not None:
        # finite, so that 0 * logit is 0 in the entropy; its probability is exactly 0
        logits = logits.masked_fill(subset.illegal_nU, torch.finfo(logits.dtype).min / 2)
    normaliser = logits.logsumexp(-1)
    logprobs = logits.gather(-1, targets[:, None]).squeeze(-1) - normaliser
    if entropy == "none":
        return logprobs, logprobs[:0]
    with torch.set_grad_enabled(entropy == "gradient" and torch.is_grad_enabled()):
        probabilities = (logits - normaliser[:, None]).exp()
        entropies = normaliser - (probabilities * logits).sum(-1)
    return logprobs, entropies


def _spans(positions: Tensor, head: Head, legal: LegalIndex | None, max_logits: int) -> list[Tensor]:
    """Cut positions into chunks whose logits fit."""
    width = _vocabulary(head)
    if legal is not None and _is_plain_linear(head):
        width = min(width, int(legal.ids.unique().numel()))
    return list(positions.split(max(1, max_logits // max(width, 1))))


def _is_plain_linear(head: Head) -> bool:
    return type(head) is nn.Linear and not head._forward_hooks and not head._forward_pre_hooks


def _columns_of(head: Head, hidden: Tensor, columns: Tensor) -> Tensor:
    assert isinstance(head, nn.Linear)
    bias = head.bias[columns] if head.bias is not None else None
    return nn.functional.linear(hidden, head.weight[columns], bias)


def _vocabulary(head: Head) -> int:
    width = getattr(head, "out_features", None)
    if width is None:
        raise TypeError(f"token_logprobs: the head {type(head).__name__} does not say its vocabulary (out_features)")
    return int(width)
