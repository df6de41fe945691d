"""The frozen policy that a divergence is measured from."""

from __future__ import annotations

import copy

from torch import nn


def frozen_copy(module: nn.Module) -> nn.Module:
    """A copy that never trains: no gradients, no dropout. Its weights are those of this moment.

    Keep it outside the trained module, so that it lands in no checkpoint and in no weight sync; a resumed run makes
    it anew from the model that the config names.
    """
    reference = copy.deepcopy(module)
    reference.requires_grad_(False)
    return reference.eval()
