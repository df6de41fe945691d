"""The frozen policy that a divergence or a preference is measured from."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from rllib_agentic.rl_module.lora import adapter_off, has_lora


def reference_of(module: Any) -> Any:
    """The policy at the start of the run: a frozen copy, or the base under the adapters, which costs no memory."""
    return BaseUnderAdapter(module) if has_lora(module) else frozen_copy(module)


def frozen_copy(module: nn.Module) -> nn.Module:
    """A copy that never trains: no gradients, no dropout. Its weights are those of this moment.

    Keep it outside the trained module, so that it lands in no checkpoint and in no weight sync; a resumed run makes
    it anew from the model that the config names.
    """
    reference = copy.deepcopy(module)
    reference.requires_grad_(False)
    return reference.eval()


class BaseUnderAdapter:
    """A module whose adapters are switched off while it computes.

    Adapters give 0 at first, so this is the policy that the run started from, and stays it, because the base is never
    trained.

    Args:
        module: the trained module.
    """

    def __init__(self, module: Any) -> None:
        self._module = module

    @property
    def model(self) -> Any:
        """The model, adapters included."""
        return self._module.model

    def hidden(self, ids_BT: Tensor) -> Tensor:
        """Last hidden states of the base, ``[B, T, D]``."""
        with adapter_off(self.model):
            return self._module.hidden(ids_BT)

    def logits(self, hidden: Tensor) -> Tensor:
        """The base's logits, ``[..., D]`` to ``[..., V]``."""
        with adapter_off(self.model):
            return self._module.logits(hidden)
