"""Estimators of the divergence from a reference policy, with the value and the gradient that each one has.

With ``d = logprob - reference_logprob`` of a token sampled from the current policy (J. Schulman, "Approximating KL
divergence", 2020), and ``KL = KL(policy || reference)``:

=====  =======================  ======================  ==================================
name   value of one token       expectation             expected gradient as a loss term
=====  =======================  ======================  ==================================
k1     ``d``                    KL, exactly             0: it regularises nothing
k2     ``d**2 / 2``             close to KL near 0      the gradient of KL
k3     ``exp(-d) - 1 + d``      KL, exactly             the gradient of KL(reference || policy)
=====  =======================  ======================  ==================================

"As a loss term" means that the samples are fixed and only ``logprob`` is differentiated, which is what a trainer does.
``k1`` has the right gradient only inside the reward, where REINFORCE multiplies it by the score function.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

KLEstimator = Literal["k1", "k2", "k3"]

LARGEST_LOG_RATIO = 20.0


def kl_estimate(logprobs: Tensor, reference_logprobs: Tensor, estimator: KLEstimator) -> Tensor:
    """One divergence estimate a token, in nats; any shape.

    The exponent of ``k3`` is limited to 20, so that one token that the reference likes and the policy does not
    cannot overflow.

    Example:
        >>> import torch
        >>> policy, reference = torch.tensor([-1.0]), torch.tensor([-1.5])
        >>> [round(float(kl_estimate(policy, reference, k)), 4) for k in ("k1", "k2", "k3")]
        [0.5, 0.125, 0.1065]
    """
    difference = logprobs - reference_logprobs
    if estimator == "k1":
        return difference
    if estimator == "k2":
        return difference.square() / 2
    if estimator == "k3":
        return (-difference).clamp(max=LARGEST_LOG_RATIO).exp() - 1 + difference
    raise ValueError(f"kl_estimate: unknown estimator {estimator!r}; known: k1, k2, k3")
