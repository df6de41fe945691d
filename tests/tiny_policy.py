"""A very small language model with the face of LLMTorchRLModule, and random rows for it. No Ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from rllib_agentic.learner.row_trainer import RowTrainer, make_optimizer
from rllib_agentic.learner.scoring import Scorer, find_head
from rllib_agentic.learner.settings import LearnerSettings, LearnerSetup
from rllib_agentic.losses.policy import PolicyLoss, PPOClip
from rllib_agentic.trajectory import LegalTokens, Row

VOCABULARY = 23


class TinyPolicy(nn.Module):
    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=128,
            initializer_range=0.5,
            tie_word_embeddings=True,
        )
        self.model = LlamaForCausalLM(config)
        self.value_head = nn.Sequential(nn.Linear(16, 1), nn.Flatten(-2))
        self.to(dtype).eval()

    def hidden(self, ids_BT: torch.Tensor) -> torch.Tensor:
        return self.model.model(input_ids=ids_BT, use_cache=False).last_hidden_state

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.model.lm_head(hidden)


def make_row(mask: Sequence[int], *, seed: int = 0, legal: bool = False, **fields: Any) -> Row:
    """A row with random tokens and advantages; with ``legal``, positions in turn free, forced, and of four tokens."""
    rng = np.random.default_rng(seed)
    action_mask = np.array(mask, bool)
    ids = rng.integers(0, VOCABULARY, len(mask)).astype(np.int32)
    legal_tokens = None
    if legal:
        sets = []
        for position, token in enumerate(ids[action_mask].tolist()):
            others = [int(t) for t in rng.permutation(VOCABULARY) if t != token]
            sets.append([[], [token], [token, *others[:3]]][position % 3])
        offsets = np.cumsum([0, *map(len, sets)]).astype(np.int32)
        legal_tokens = LegalTokens(offsets, np.array([t for s in sets for t in s], np.int32))
    row = Row(
        token_ids=ids,
        action_mask=action_mask,
        logprobs=np.where(action_mask, -rng.random(len(mask)), 0).astype(np.float32),
        turn_index=np.where(action_mask, 0, -1).astype(np.int32),
        policy_versions=np.where(action_mask, 0, -1).astype(np.int32),
        advantages=np.where(action_mask, rng.normal(size=len(mask)), 0).astype(np.float32),
        rewards=np.zeros(len(mask), np.float32),
        legal_tokens=legal_tokens,
    )
    return replace(row, **fields)


def random_rows(count: int, *, seed: int = 0, legal: bool = False, rows_per_trajectory: int = 1) -> list[Row]:
    """Rows of several lengths with action tokens in two spans or more."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        mask = rng.random(rng.integers(6, 30)) < 0.5
        mask[0], mask[-1 - i % 3] = False, True
        last = i % rows_per_trajectory == rows_per_trajectory - 1 or i == count - 1
        rows.append(
            make_row(mask.tolist(), seed=seed * 100 + i, legal=legal, trajectory=i // rows_per_trajectory, last=last)
        )
    return rows


def make_trainer(
    policy: TinyPolicy,
    loss: PolicyLoss | None = None,
    *,
    temperature: float = 1.0,
    critic: object = None,
    reference: Any = None,
    distributed: bool = False,
    dropout_seed: int | None = None,
    **settings: object,
) -> RowTrainer:
    setup = LearnerSetup(
        LearnerSettings.model_validate({"lr": 1e-2, **settings}),
        loss or PPOClip(),
        temperature,
        critic,  # type: ignore[arg-type]
        dropout_seed,
    )
    return RowTrainer(
        make_scorer(policy, setup),
        None if reference is None else make_scorer(reference, setup),
        make_optimizer(policy, setup.settings),
        setup,
        distributed=distributed,
    )


def make_scorer(policy: Any, setup: LearnerSetup) -> Scorer:
    return Scorer(
        policy,
        temperature=setup.temperature,
        max_logits=setup.settings.max_logits,
        dtype=None,
        head=find_head(policy),
        critic=None if setup.critic is None else policy.value_head,
    )


def grad_of(tensor: torch.Tensor) -> torch.Tensor:
    """The gradient that a backward pass left."""
    assert tensor.grad is not None
    return tensor.grad
