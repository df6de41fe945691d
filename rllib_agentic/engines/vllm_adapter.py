"""A learner's LoRA adapters as the folder that peft, and so vLLM, reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from rllib_agentic.errors import InputError

_MARK = ".lora_"
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def is_adapter_alone(names: Mapping[str, Any]) -> bool:
    """Whether these weights are those of adapters, without the model below them."""
    return bool(names) and all(_MARK in name for name in names)


def adapter_args(rank: int) -> dict[str, Any]:
    """Arguments of vLLM's ``AsyncEngineArgs`` that make room for adapters of a rank, of two versions at a time.

    Raises:
        InputError: vLLM takes no adapters of that rank.
    """
    enough = [allowed for allowed in _RANKS if allowed >= rank]
    if not enough:
        raise InputError(f"model.lora.rank: vLLM takes ranks up to {_RANKS[-1]}, got {rank}")
    return {"enable_lora": True, "max_lora_rank": enough[0], "max_loras": 2, "max_cpu_loras": 4}


def write_adapter(tensors: Mapping[str, torch.Tensor], alpha: float, folder: Path) -> None:
    """Write adapters as peft saves them.

    Args:
        tensors: under checkpoint names, such as ``model.layers.0.self_attn.q_proj.lora_A.default.weight``.
        alpha: their output counts ``alpha / rank``.
        folder: an empty one.

    Raises:
        InputError: adapters of different ranks.
    """
    ranks = {tensor.shape[0] for name, tensor in tensors.items() if ".lora_A." in name}
    if len(ranks) != 1:
        raise InputError(f"adapters: one rank was expected, these have {sorted(ranks)}")
    saved, modules = {}, set()
    for name, tensor in tensors.items():
        module, _, part = name.partition(_MARK)
        modules.add(module.rpartition(".")[2])
        saved[f"base_model.model.{module}{_MARK}{part.partition('.')[0]}.weight"] = tensor
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none", "r": ranks.pop(), "lora_alpha": alpha}
    (folder / "adapter_config.json").write_text(json.dumps(settings | {"target_modules": sorted(modules)}))
    save_file(saved, folder / "adapter_model.safetensors")
