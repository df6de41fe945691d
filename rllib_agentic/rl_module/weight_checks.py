"""Weights on their way to another engine: under its names, with checksums to compare on both sides."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch

from rllib_agentic.errors import InputError

Weights = Mapping[str, np.ndarray]
"""Name to array as :func:`rllib_agentic.rl_module.weights.read_weights` gives them; uint16 means bfloat16 bits."""

T = TypeVar("T", np.ndarray, torch.Tensor)
_OF_MODULE = "model."


def checkpoint_names(weights: Mapping[str, T]) -> dict[str, T]:
    """A module's weights under the names of its Hugging Face checkpoint.

    Raises:
        InputError: a name that belongs to no checkpoint.

    Example:
        >>> sorted(checkpoint_names({"model.lm_head.weight": np.zeros(1), "model.model.norm.weight": np.zeros(1)}))
        ['lm_head.weight', 'model.norm.weight']
    """
    unknown = [name for name in weights if not name.startswith(_OF_MODULE)]
    if unknown:
        raise InputError(
            f"weights: no place in a checkpoint for {', '.join(sorted(unknown)[:5])}; expected 'model. ...'"
        )
    return {name.removeprefix(_OF_MODULE): array for name, array in weights.items()}


def tensor_checksum(tensor: torch.Tensor) -> int:
    """CRC-32 of a tensor's bytes, in its own dtype."""
    flat = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
    return zlib.crc32(flat.numpy().data)


def sample_names(weights: Mapping[str, torch.Tensor], most: int = 12) -> list[str]:
    """Names of a sample: all over the model, small tensors first where there is a choice.

    Args:
        weights: by name.
        most: how many tensors.
    """
    ordered = sorted(weights)
    step = max(1, len(ordered) // max(1, most // 2))
    spread = ordered[::step][: most // 2]
    small = sorted((name for name in ordered if name not in spread), key=lambda n: (weights[n].numel(), n))
    return [*spread, *small[: most - len(spread)]]


def sample_checksums(weights: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Checksums of a sample of tensors, by name."""
    return {name: tensor_checksum(weights[name]) for name in sample_names(weights)}
