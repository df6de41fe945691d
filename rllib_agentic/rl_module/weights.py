"""A module's weights as numpy arrays by name: each tensor once, every name accounted for."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import nn


def read_weights(weights: nn.Module | Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """A snapshot of all parameters and persistent buffers (or of the given ones); later training does not change it.

    A tensor with several names (a tied ``lm_head``) appears once, under its first name. numpy has no bfloat16: such
    tensors come as their bits, dtype uint16. (Numpy arrays cross Ray's object store several times faster than tensors.)
    """
    named = named_weights(weights) if isinstance(weights, nn.Module) else weights
    return {name: _to_numpy(tensor) for name, tensor in named.items()}


def write_weights(
    module: nn.Module | Mapping[str, torch.Tensor], weights: Mapping[str, np.ndarray], *, ignore: Collection[str] = ()
) -> None:
    """Copy weights into a module in place; optimizers that hold its parameters go on.

    Args:
        module: the target, or some of its tensors by name; dtypes stay (a bf16 runner takes the weights of an fp32
            learner).
        weights: as :func:`read_weights` gives them; uint16 means bfloat16 bits.
        ignore: names in ``weights`` that the target rightly lacks.

    Raises:
        ValueError: a name is missing or unknown, or a shape differs. Nothing is written then.
    """
    targets = named_weights(module) if isinstance(module, nn.Module) else module
    faults = [
        f"{kind}: {', '.join(sorted(names)[:5])}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        for kind, names in (
            ("missing", targets.keys() - weights.keys()),
            ("unknown", weights.keys() - targets.keys() - set(ignore)),
            (
                "of another shape",
                {n for n in targets.keys() & weights.keys() if tuple(targets[n].shape) != np.shape(weights[n])},
            ),
        )
        if names
    ]
    if faults:
        raise ValueError(f"weights do not fit {type(module).__name__}: {'; '.join(faults)}. Nothing was loaded.")
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(to_tensor(weights[name]))


def named_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and persistent buffers, each tensor once under its first name, sharing the module's memory."""
    unique: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            unique[name] = tensor.detach()
    return unique


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """One array of :func:`read_weights` as a tensor that shares its memory; it is not to be written to."""
    with warnings.catch_warnings():
        # Ray hands out read-only arrays; they are only read here.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if tensor.dtype == torch.uint16 else tensor


def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    bits = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
    return bits.to("cpu", copy=True).numpy()
