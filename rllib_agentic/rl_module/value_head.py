"""The critic: one number a position, read off the last hidden state."""

from __future__ import annotations

import torch
from torch import nn


class ValueHead(nn.Module):
    """A linear map that starts at zero, so that an untrained critic predicts 0 everywhere.

    It computes in float32 whatever the model's dtype: returns need more digits than bf16 has.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden_size, 1, dtype=torch.float32)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Values of hidden states: ``[..., D]`` of any float dtype to float32 ``[...]``."""
        return self.linear(hidden.float()).squeeze(-1)
