"""Sums and means over selected tokens: masked values are never touched, whatever they are."""

from __future__ import annotations

import torch
from torch import Tensor


def as_mask(mask: Tensor) -> Tensor:
    """A bool mask, or the refusal of something that is no mask.

    Raises:
        ValueError: the values are not all 0 or 1, as when advantages were handed over where the mask was due.

    Example:
        >>> as_mask(torch.tensor([1, 0]))
        tensor([ True, False])
        >>> as_mask(torch.tensor([0.5, -1.2]))
        Traceback (most recent call last):
        ValueError: action mask: expected bool or only 0 and 1, got float32 values from -1.2 to 0.5
    """
    if mask.dtype == torch.bool:
        return mask
    if not bool(((mask == 0) | (mask == 1)).all()):
        dtype = str(mask.dtype).removeprefix("torch.")
        low, high = float(mask.min()), float(mask.max())
        raise ValueError(f"action mask: expected bool or only 0 and 1, got {dtype} values from {low:.4g} to {high:.4g}")
    return mask.bool()


def masked_sum(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum over the selected entries; -inf and NaN elsewhere reach neither the sum nor the gradient.

    Args:
        values: any shape.
        mask: the same shape, true where selected.
        dim: sum over this dimension only.

    Example:
        >>> masked_sum(torch.tensor([-0.5, -torch.inf, -1.0]), torch.tensor([True, False, True]))
        tensor(-1.5000)
    """
    selected = torch.where(as_mask(mask), values, torch.zeros_like(values))
    return selected.sum() if dim is None else selected.sum(dim)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean over the selected entries; 0, with zero gradient, where nothing is selected.

    Example:
        >>> masked_mean(torch.tensor([3.0, 9.0, 5.0]), torch.tensor([True, False, True]))
        tensor(4.)
    """
    mask = as_mask(mask)
    count = mask.sum() if dim is None else mask.sum(dim)
    return masked_sum(values, mask, dim) / count.clamp(min=1)


def masked_whiten(values: Tensor, mask: Tensor) -> Tensor:
    """Shift and scale the selected entries to mean 0 and population standard deviation 1; 0 elsewhere.

    One entry alone, equal entries, and entries that differ by rounding noise only become exactly 0.

    Example:
        >>> masked_whiten(torch.tensor([1.0, 3.0, 100.0]), torch.tensor([True, True, False]))
        tensor([-1.,  1.,  0.])
    """
    mask = as_mask(mask)
    mean = masked_mean(values, mask)
    centred = torch.where(mask, values - mean, torch.zeros_like(values))
    std = masked_mean(centred.square(), mask).sqrt()
    largest = torch.where(mask, values.abs(), torch.zeros_like(values)).amax()
    noise = 8 * torch.finfo(values.dtype).eps * largest
    return torch.where(std > noise, centred / torch.where(std > noise, std, torch.ones_like(std)), 0 * centred)
