"""The critic's loss."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class ValueLoss(NamedTuple):
    """Attributes: loss: a token's loss, ``[B, T]``; clipped: where the clip is active, bool ``[B, T]``."""

    loss: Tensor
    clipped: Tensor


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, action_mask: Tensor, clip: float | None = 0.2
) -> ValueLoss:
    """Squared error to the returns, with the new value held within ``clip`` of the old one.

    ``loss = max((v - R)**2, (v_clipped - R)**2) / 2`` with ``v_clipped = old + clamp(v - old, -clip, clip)``
    (Schulman et al., "High-dimensional continuous control using GAE", and its PPO implementations). 0 where masked.

    Args:
        values: the critic's values, ``[B, T]``; entry ``t`` is predicted from the context before token ``t``.
        old_values: the values that advantages and returns were made from, ``[B, T]``.
        returns: targets, ``[B, T]``.
        action_mask: bool ``[B, T]``.
        clip: largest change of a value that still lowers the loss, or None for no clip.

    Example:
        >>> one = torch.ones(1, 1)
        >>> [round(float(x), 3) for x in value_loss(0.5 * one, 0 * one, one, one.bool(), clip=0.2)]
        [0.32, 1.0]
    """
    zero = torch.zeros_like(values)
    values, old_values, returns = (torch.where(action_mask, x, zero) for x in (values, old_values, returns))
    plain = (values - returns).square() / 2
    if clip is None:
        return ValueLoss(plain, torch.zeros_like(action_mask))
    held = old_values + (values - old_values).clamp(-clip, clip)
    pessimistic = (held - returns).square() / 2
    return ValueLoss(torch.maximum(plain, pessimistic), action_mask & (pessimistic > plain))
