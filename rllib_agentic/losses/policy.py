"""Policy losses: one small class a paper, one loss value a token.

All of them take the same :class:`LossInputs` and leave normalisation to :mod:`~rllib_agentic.losses.aggregation`.
``r_t = exp(logprob - old_logprob)`` is the importance ratio of a token, ``A_t`` its advantage. On the first optimizer
step after sampling the policy is still the one that sampled, so every ratio is 1 and nothing clips: clipping is at
work only from the second step on the same data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rllib_agentic.components import Family, Settings
from rllib_agentic.losses.kl import LARGEST_LOG_RATIO
from rllib_agentic.losses.masked import as_mask, masked_mean, masked_sum


@dataclass(frozen=True, slots=True)
class LossInputs:
    """What a policy loss sees. All tensors are ``[B, T]`` and aligned with the token ids unless stated.

    Attributes:
        logprobs: of the sampled tokens under the current policy, with gradient.
        old_logprobs: under the policy that the ratio is taken against.
        advantages: one a token.
        action_mask: true on sampled tokens; bool, or 0 and 1.
        trajectory: int64 ``[B]``, rows with equal numbers form one sequence; None: every row is its own.
        sequence_log_ratio: ``[B]``, the mean log-ratio over each row's *whole* trajectory without gradient, where
            some of its rows are in another micro-batch; None: computed from the rows that are here.
        pair_loss: each token's share of the loss of its pair, without gradient; None where rows are no pairs.
    """

    logprobs: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    action_mask: Tensor
    trajectory: Tensor | None = None
    sequence_log_ratio: Tensor | None = None
    pair_loss: Tensor | None = None

    def __post_init__(self) -> None:
        """Refuse what is no mask, and shapes that differ."""
        object.__setattr__(self, "action_mask", as_mask(self.action_mask))
        for name in ("old_logprobs", "advantages", "action_mask"):
            if getattr(self, name).shape != self.logprobs.shape:
                raise ValueError(
                    f"LossInputs: logprobs {tuple(self.logprobs.shape)}, {name} {tuple(getattr(self, name).shape)}"
                )

    def log_ratio(self) -> Tensor:
        """``logprob - old_logprob`` within ±20, 0 where masked. Beyond the limit the gradient is 0."""
        zero = torch.zeros_like(self.logprobs)
        logprobs = torch.where(self.action_mask, self.logprobs, zero)
        old_logprobs = torch.where(self.action_mask, self.old_logprobs, zero)
        return (logprobs - old_logprobs).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)

    def mean_log_ratio(self) -> Tensor:
        """The mean log-ratio over the action tokens of each row's sequence, without gradient, ``[B]``."""
        if self.sequence_log_ratio is not None:
            return self.sequence_log_ratio
        log_ratio = self.log_ratio().detach()
        if self.trajectory is None:
            return masked_mean(log_ratio, self.action_mask, dim=1)
        _, sequence = self.trajectory.unique(return_inverse=True)
        zeros = log_ratio.new_zeros(int(sequence.max()) + 1)
        total = zeros.index_add(0, sequence, masked_sum(log_ratio, self.action_mask, dim=1))
        tokens = zeros.index_add(0, sequence, self.action_mask.sum(1).to(zeros.dtype))
        return (total / tokens.clamp(min=1))[sequence]


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """A loss a token, 0 where masked, and statistics to average over tokens.

    Attributes:
        loss: ``[B, T]``, to be weighted by row and summed.
        stats: name to ``[B, T]`` without gradient: ``ratio`` and, where the loss clips, ``clipped``.
    """

    loss: Tensor
    stats: Mapping[str, Tensor] = field(default_factory=dict)


class PolicyLoss(Settings):
    """Base of all policy losses."""

    weighs_by_advantage: ClassVar[bool] = True
    """Whether a token whose advantage is 0 has neither loss nor gradient."""
    reads_old_logprobs: ClassVar[bool] = True
    """Whether the loss, or what it reports, compares the policy with the one that sampled."""
    needs_reference: ClassVar[bool] = False
    """Whether the loss compares the policy with the frozen reference."""
    pairwise: ClassVar[bool] = False
    """Whether the loss compares trajectories by pairs; see :class:`DPO`."""

    @property
    def sequence_level(self) -> bool:
        """Whether the loss of a token depends on the other tokens of its trajectory."""
        return False

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        """One loss value a token."""
        raise NotImplementedError


class Reinforce(PolicyLoss):
    """``-A_t logprob_t``: REINFORCE (Williams 1992), for one step a batch. No ratio, no clip.

    Example:
        >>> one = torch.ones(1, 1)
        >>> Reinforce()(LossInputs(-2 * one, -2 * one, 0.5 * one, one)).loss
        tensor([[1.]])
    """

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        """See the class."""
        return TokenLoss(-_advantages(inputs) * _logprobs(inputs), {"ratio": inputs.log_ratio().detach().exp()})


class Sft(PolicyLoss):
    """``-logprob_t``: supervised fine-tuning, the cross-entropy of the recorded tokens. Advantages play no part."""

    weighs_by_advantage: ClassVar[bool] = False
    reads_old_logprobs: ClassVar[bool] = False

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        """See the class."""
        return TokenLoss(-_logprobs(inputs))


class WeightedSft(PolicyLoss):
    """``-w_t logprob_t``: supervised fine-tuning where some trajectories count more; the advantages are the weights.

    Example:
        >>> one = torch.ones(1, 1)
        >>> WeightedSft()(LossInputs(-2 * one, -9 * one, 0.5 * one, one)).loss
        tensor([[1.]])
    """

    reads_old_logprobs: ClassVar[bool] = False

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        """See the class."""
        return TokenLoss(-_advantages(inputs) * _logprobs(inputs))


class DPO(PolicyLoss):
    """Direct preference optimisation (arXiv 2305.18290, eq. 7) over pairs of whole trajectories, token by token.

    A pair's loss L (:func:`~rllib_agentic.losses.preference.dpo_loss`) looks at sums over all tokens of both
    trajectories, wherever micro-batches cut them. So L, and its slopes along the two sums, are computed before the
    pass with gradient, and each of the pair's n tokens has the loss ``sg(L) / n + slope (logprob_t - sg(logprob_t))``.
    Summed over the pair this is L, with the gradient of L.

    Attributes:
        beta: strength of the pull towards the reference.
        label_smoothing: the share of pairs that may be the wrong way round (conservative DPO, E. Mitchell 2023).
    """

    reads_old_logprobs: ClassVar[bool] = False
    needs_reference: ClassVar[bool] = True
    pairwise: ClassVar[bool] = True

    beta: float = Field(default=0.1, gt=0.0, description="strength of the pull towards the reference")
    label_smoothing: float = Field(default=0.0, ge=0.0, lt=0.5, description="share of pairs the wrong way round")

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        """See the class; ``inputs.pair_loss`` and, as advantages, minus the slopes, must be there."""
        if inputs.pair_loss is None:
            raise ValueError("DPO: rows without a pair; lay them out with rllib_agentic.offline.pairs")
        logprobs = _logprobs(inputs)
        value = torch.where(inputs.action_mask, inputs.pair_loss, torch.zeros_like(logprobs))
        return TokenLoss(value - _advantages(inputs) * (logprobs - logprobs.detach()))


class PPOClip(PolicyLoss):
    """The clipped surrogate.

    ``-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)``: PPO (Schulman et al., arXiv 1707.06347, eq. 7) with the
    two bounds apart (DAPO, arXiv 2503.14476, eq. 8). With ``dual_clip = c``, the loss of a negative advantage is at
    most ``-c A`` (Ye et al., arXiv 1912.09729, eq. 5).

    Example:
        Ratio 1.5, advantage 1: the clip at 1.2 holds, and the token gets no gradient.

        >>> one = torch.ones(1, 1)
        >>> loss = PPOClip()(LossInputs(torch.tensor([[1.5]]).log(), 0 * one, one, one))
        >>> round(float(loss.loss), 4), bool(loss.stats["clipped"])
        (-1.2, True)
    """

    clip_low: float = Field(default=0.2, ge=0.0, le=1.0, description="the ratio is held above 1 - clip_low")
    clip_high: float = Field(default=0.2, ge=0.0, description="the ratio is held below 1 + clip_high; DAPO uses 0.28")
    dual_clip: float | None = Field(
        default=None, gt=1.0, description="bound of the loss at negative advantages; often 3"
    )

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        """See the class."""
        return self._clipped(inputs, inputs.log_ratio())

    def _clipped(self, inputs: LossInputs, log_ratio: Tensor) -> TokenLoss:
        ratio, advantages = log_ratio.exp(), _advantages(inputs)
        held = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        loss = torch.maximum(-ratio * advantages, -held * advantages)
        clipped = -held * advantages > -ratio * advantages
        if self.dual_clip is not None:
            bound = -self.dual_clip * advantages
            too_large = (advantages < 0) & (loss > bound)
            loss = torch.where(too_large, bound, loss)
            clipped = clipped | too_large
        return TokenLoss(loss, {"ratio": ratio.detach(), "clipped": (clipped & inputs.action_mask).detach()})


class GSPO(PPOClip):
    """Group sequence policy optimisation: the ratio of a whole trajectory, clipped.

    ``s = exp(mean over its action tokens of the log-ratio)`` replaces ``r_t`` in the clipped surrogate (Zheng et al.,
    arXiv 2507.18071, eq. 5 and 7). It is computed as ``s_t = sg(s) p_t / sg(p_t)`` (eq. 14), which has the same value
    everywhere and, with ``sequence_mean_token_mean``, the same gradient, and lets every token have its own advantage.

    Example:
        Log-ratios 0.2 and 0.0 make s = exp(0.1) for both tokens.

        >>> zero = torch.zeros(1, 2)
        >>> inputs = LossInputs(torch.tensor([[0.2, 0.0]]), zero, zero + 1, zero + 1)
        >>> GSPO(clip_low=1, clip_high=1)(inputs).loss
        tensor([[-1.1052, -1.1052]])
    """

    clip_low: float = Field(default=3e-4, ge=0.0, le=1.0, description="the ratio is held above 1 - clip_low")
    clip_high: float = Field(default=4e-4, ge=0.0, description="the ratio is held below 1 + clip_high")

    @property
    def sequence_level(self) -> bool:
        """Always true."""
        return True

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        """See the class."""
        logprobs = _logprobs(inputs)
        return self._clipped(inputs, inputs.mean_log_ratio()[:, None] + (logprobs - logprobs.detach()))


class CISPO(PolicyLoss):
    """Clipped importance weights: every token keeps its gradient, only its weight is limited.

    ``-sg(clip(r, 1 - clip_low, 1 + clip_high)) A logprob`` (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5). The lower
    bound is off by default as there, and the upper one at 5 as in ScaleRL (arXiv 2510.13786).

    Example:
        >>> one = torch.ones(1, 1)
        >>> inputs = LossInputs(-one, -4 * one, one, one)
        >>> CISPO()(inputs).loss  # exp(3) is held at 5
        tensor([[5.]])
    """

    clip_low: float = Field(default=1.0, ge=0.0, le=1.0, description="the weight is held above 1 - clip_low")
    clip_high: float = Field(default=4.0, ge=0.0, description="the weight is held below 1 + clip_high")

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        """See the class."""
        ratio = inputs.log_ratio().detach().exp()
        held = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        clipped = (held != ratio) & inputs.action_mask
        return TokenLoss(-held * _advantages(inputs) * _logprobs(inputs), {"ratio": ratio, "clipped": clipped})


class SAPO(PolicyLoss):
    """A soft gate in place of the clip.

    ``-(4 / tau) sigmoid(tau (r - 1)) A`` with ``tau`` by the sign of the advantage (Gao et al., arXiv 2511.20347). At
    ``r = 1`` its gradient equals that of ``-r A``; away from 1 it fades as ``4 p (1 - p)``, p being the sigmoid.

    Example:
        >>> one = torch.ones(1, 1)
        >>> SAPO()(LossInputs(0 * one, 0 * one, one, one)).loss
        tensor([[-2.]])
    """

    tau_positive: float = Field(default=1.0, gt=0.0, description="sharpness of the gate at positive advantages")
    tau_negative: float = Field(default=1.05, gt=0.0, description="sharpness of the gate at negative advantages")

    def __call__(self, inputs: LossInputs) -> TokenLoss:
        """See the class."""
        ratio, advantages = inputs.log_ratio().exp(), _advantages(inputs)
        tau = torch.full_like(ratio, self.tau_negative).masked_fill(advantages > 0, self.tau_positive)
        gate = torch.sigmoid(tau * (ratio - 1)) * 4 / tau
        return TokenLoss(-gate * advantages, {"ratio": ratio.detach()})


def _logprobs(inputs: LossInputs) -> Tensor:
    return torch.where(inputs.action_mask, inputs.logprobs, torch.zeros_like(inputs.logprobs))


def _advantages(inputs: LossInputs) -> Tensor:
    return torch.where(inputs.action_mask, inputs.advantages, torch.zeros_like(inputs.advantages))


POLICY_LOSSES: Family[PolicyLoss] = Family(
    "loss",
    {
        "reinforce": Reinforce,
        "sft": Sft,
        "weighted_sft": WeightedSft,
        "dpo": DPO,
        "ppo_clip": PPOClip,
        "gspo": GSPO,
        "cispo": CISPO,
        "sapo": SAPO,
    },
)
