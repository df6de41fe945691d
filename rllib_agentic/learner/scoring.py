"""Running the language model over micro-batches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rllib_agentic.errors import InputError
from rllib_agentic.learner.micro_batches import Floats, MicroBatch, make_micro_batches
from rllib_agentic.losses import token_logprobs
from rllib_agentic.trajectory.row import Row


class PolicyModule(Protocol):
    """What a learner needs of :class:`~rllib_agentic.rl_module.llm_rl_module.LLMTorchRLModule`."""

    model: Any

    def hidden(self, ids_BT: Tensor) -> Tensor:
        """Last hidden states ``[B, T, D]``."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """``[..., D]`` to ``[..., V]``."""
        ...


class Scores(NamedTuple):
    """Attributes: logprobs, entropies, values: each ``[B, T]``, 0 where masked; values None without a critic."""

    logprobs: Tensor
    entropies: Tensor
    values: Tensor | None


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores the action tokens of micro-batches under one policy.

    Attributes:
        module: the policy.
        temperature: divides the logits, as in sampling.
        max_logits: most logits alive at a time.
        dtype: compute under autocast in this dtype; None computes in the parameters' own.
        critic: hidden states to values, or None.
        critic_hidden: token ids to the hidden states that the critic reads; None where it reads the policy's.
        head: hidden states to logits; see :func:`find_head`.
    """

    module: PolicyModule
    temperature: float
    max_logits: int
    dtype: torch.dtype | None
    head: Callable[[Tensor], Tensor]
    critic: Callable[[Tensor], Tensor] | None = None
    critic_hidden: Callable[[Tensor], Tensor] | None = None

    def __call__(self, batch: MicroBatch, entropy: Literal["none", "value", "gradient"] = "value") -> Scores:
        """One forward pass. The state at position ``t - 1`` scores the token at ``t`` and gives its baseline."""
        mask = batch.action_mask
        with self._precision(batch.token_ids.device):
            states = self.module.hidden(batch.token_ids[:, :-1])[mask[:, 1:]]
            scores = token_logprobs(
                states,
                self.head,
                batch.token_ids[mask],
                temperature=self.temperature,
                legal=batch.legal,
                entropy=entropy,
                max_logits=self.max_logits,
            )
            if self.critic is not None and self.critic_hidden is not None:
                states = self.critic_hidden(batch.token_ids[:, :-1])[mask[:, 1:]]
        values = None if self.critic is None else _spread(self.critic(states).to(scores.logprobs.dtype), mask)
        entropies = torch.zeros_like(scores.logprobs) if entropy == "none" else scores.entropies
        return Scores(_spread(scores.logprobs, mask), _spread(entropies, mask), values)

    @property
    def device(self) -> torch.device:
        """Where the policy is."""
        return next(self.module.model.parameters()).device

    def values(self, ids_BT: Tensor) -> Tensor:
        """The critic's value of every prefix, ``[B, T]``; entry ``t`` has seen token ``t``."""
        if self.critic is None:
            raise InputError("model.value_head: the advantages need a critic, but the model has none")
        with self._precision(ids_BT.device):
            return self.critic((self.critic_hidden or self.module.hidden)(ids_BT))

    def _precision(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        if self.dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(device.type, dtype=self.dtype)


def _spread(values_A: Tensor, mask_BT: Tensor) -> Tensor:
    return values_A.new_zeros(mask_BT.shape).masked_scatter(mask_BT, values_A)


@torch.no_grad()
def score_rows(scorer: Scorer, rows: Sequence[Row], numbers: Sequence[int], *, max_tokens: int) -> dict[int, Floats]:
    """Logprobs of the action tokens without gradient, row number to ``[A_row]``.

    Args:
        scorer: the policy to score under.
        rows: all rows that ``numbers`` may name.
        numbers: which to score.
        max_tokens: budget a forward pass.
    """
    found: dict[int, Floats] = {}
    unweighted = np.zeros(len(numbers))
    for batch in make_micro_batches(rows, numbers, unweighted, max_tokens=max_tokens, device=scorer.device):
        flat = scorer(batch, entropy="none").logprobs[batch.action_mask].cpu().numpy()
        ends = np.cumsum([int(rows[i].action_mask.sum()) for i in batch.rows])
        found |= dict(zip(batch.rows, np.split(flat, ends[:-1]), strict=True))
    return found


@dataclass(frozen=True, slots=True)
class WholeHead:
    """A head of which only whole logits may be had, because the model changes them after the output layer."""

    logits: Callable[[Tensor], Tensor]
    out_features: int

    def __call__(self, hidden: Tensor) -> Tensor:
        """Hidden states ``[n, D]`` to logits ``[n, V]``."""
        return self.logits(hidden)


@torch.no_grad()
def find_head(module: PolicyModule) -> nn.Linear | WholeHead:
    """The output layer itself where it alone makes the logits (tried out on two vectors), else the module's logits.

    A bare linear layer lets :func:`~rllib_agentic.losses.logprobs.token_logprobs` multiply legal tokens only.
    """
    output = module.model.get_output_embeddings()
    weight = output.weight
    probe = torch.linspace(-1, 1, 2 * weight.shape[1], device=weight.device).to(weight.dtype).view(2, -1)
    logits = module.logits(probe)
    if type(output) is nn.Linear and torch.equal(logits, output(probe)):
        return output
    return WholeHead(module.logits, logits.shape[-1])
