"""Gradients across learners: summed once a step, by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

BUCKET_ELEMENTS = 2**24


def collect_gradients(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Every parameter's gradient; what no row reached gets zeros, so that all learners hold the same list."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def sum_over_learners(gradients: Sequence[Tensor]) -> None:
    """Replace each gradient by its sum over all learners, in flat buckets.

    Learners may have run any number of micro-batches, none included: they meet here only, once an optimizer step.
    """
    for bucket in _buckets(gradients):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        dist.all_reduce(flat, op=dist.ReduceOp.SUM)
        for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))


def clip_by_global_norm(gradients: Sequence[Tensor], limit: float | None) -> float:
    """Scale all gradients in place so that their joint norm is at most ``limit``; returns the norm before.

    A norm that is not finite is returned and nothing is scaled: the caller skips the step.
    """
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(gradients))))
    value = float(norm)
    if limit is not None and torch.isfinite(norm) and value > limit:
        torch._foreach_mul_(list(gradients), limit / value)
    return value


@torch.no_grad()
def broadcast_from_first(tensors: Iterable[Tensor]) -> None:
    """Give every learner the first one's values, so that all start from one policy."""
    for tensor in tensors:
        dist.broadcast(tensor, src=0)


def _buckets(gradients: Sequence[Tensor]) -> list[list[Tensor]]:
    buckets: list[list[Tensor]] = []
    held = 0
    for gradient in gradients:
        fits = buckets and held + gradient.numel() <= BUCKET_ELEMENTS and buckets[-1][0].dtype == gradient.dtype
        if fits:
            buckets[-1].append(gradient)
            held += gradient.numel()
        else:
            buckets.append([gradient])
            held = gradient.numel()
    return buckets
