"""Losses in pure torch: a value a token, weighted by row, never a hidden normaliser."""

from rllib_agentic.losses.aggregation import Aggregation, row_weights
from rllib_agentic.losses.importance import Importance, mismatch
from rllib_agentic.losses.kl import KLEstimator, kl_estimate
from rllib_agentic.losses.logprobs import LegalIndex, TokenLogprobs, token_logprobs
from rllib_agentic.losses.policy import DPO, POLICY_LOSSES, LossInputs, PolicyLoss, TokenLoss
from rllib_agentic.losses.preference import dpo_loss
from rllib_agentic.losses.value import value_loss

__all__ = [
    "DPO",
    "POLICY_LOSSES",
    "Aggregation",
    "Importance",
    "KLEstimator",
    "LegalIndex",
    "LossInputs",
    "PolicyLoss",
    "TokenLogprobs",
    "TokenLoss",
    "dpo_loss",
    "kl_estimate",
    "mismatch",
    "row_weights",
    "token_logprobs",
    "value_loss",
]
