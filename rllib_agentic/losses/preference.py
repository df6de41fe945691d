"""Learning from pairs: direct preference optimisation."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import logsigmoid


class PreferenceLoss(NamedTuple):
    """Attributes: loss: a pair's loss ``[P]``; margin: how much more the policy prefers the chosen one, ``[P]``."""

    loss: Tensor
    margin: Tensor


def dpo_loss(
    chosen: Tensor,
    rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
) -> PreferenceLoss:
    """DPO (Rafailov et al., arXiv 2305.18290, eq. 7), one value a pair.

    ``loss = -log sigmoid(m)`` with ``m = beta ((chosen - reference_chosen) - (rejected - reference_rejected))``. Where
    a share ``e`` of the pairs may be the wrong way round, ``-(1 - e) log sigmoid(m) - e log sigmoid(-m)``
    (conservative DPO; E. Mitchell, "A note on DPO with noisy preferences", 2023).

    Args:
        chosen: the policy's logprob of the better trajectory, summed over all its action tokens, ``[P]``.
        rejected: the same of the worse one.
        reference_chosen: the frozen reference's sum for the better one.
        reference_rejected: the frozen reference's sum for the worse one.
        beta: strength of the pull towards the reference.
        label_smoothing: the share ``e``, below one half.

    Example:
        An untouched policy has margin 0 and loss log 2.

        >>> import torch
        >>> one = torch.ones(1)
        >>> [round(float(x), 4) for x in dpo_loss(-one, -2 * one, -one, -2 * one)]
        [0.6931, 0.0]
    """
    margin = beta * ((chosen - reference_chosen) - (rejected - reference_rejected))
    loss = -(1 - label_smoothing) * logsigmoid(margin) - label_smoothing * logsigmoid(-margin)
    return PreferenceLoss(loss, margin)
