"""LoRA: low-rank adapters over a frozen model, through peft."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from rllib_agentic.errors import InputError
from rllib_agentic.rl_module.model_settings import LoraSettings
from rllib_agentic.rl_module.weights import named_weights

ADAPTER = "default"
_MARK = ".lora_"
_BASE = ".base_layer."


def add_lora(model: Any, settings: LoraSettings) -> None:
    """Put adapters into a model, in place, and freeze everything else.

    The adapters' output is 0 at first (B is 0), so the policy starts as the base. The model's class and its methods
    stay; adapters are float32 whatever the model's dtype.

    Args:
        model: a Hugging Face causal language model.
        settings: rank, scale, and which layers; ``seed`` None counts as 0.

    Raises:
        InputError: peft is not installed, no layer has such a name, or a tied output layer would get an adapter.
    """
    if find_spec("peft") is None:
        raise InputError("model.lora: peft is not installed here; run: pip install 'rllib-agentic[lora]'")
    from peft import inject_adapter_in_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed or 0)
        try:
            inject_adapter_in_model(lora_config(settings), model, adapter_name=ADAPTER)
        except ValueError as error:
            raise InputError(f"model.lora.target_modules: {error}") from error
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_adapter(name))
        if is_adapter(name):
            parameter.data = parameter.data.float()
    tied = {model.get_input_embeddings(), model.get_output_embeddings()} & {*_adapted(model)}
    if tied and model.config.tie_word_embeddings:
        raise InputError("model.lora.target_modules: this model's embedding and output layer are one: name neither")


def lora_config(settings: LoraSettings) -> Any:
    """Peft's own form of the settings."""
    from peft import LoraConfig

    targets = settings.target_modules
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]
        lora_dropout=settings.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        bias="none",
        task_type="CAUSAL_LM",
    )


def adapter_parameters(model: nn.Module, settings: LoraSettings) -> int:
    """How many parameters the adapters of a model would have, linear layers taken alone; nothing is changed."""
    output = model.get_output_embeddings()  # type: ignore[operator]
    targets = settings.target_modules
    return sum(
        settings.rank * (layer.in_features + layer.out_features)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
        and (layer is not output if isinstance(targets, str) else name.rpartition(".")[2] in targets or name in targets)
    )


def has_lora(model: nn.Module) -> bool:
    """Whether a model holds adapters."""
    return next(_adapted(model), None) is not None


@contextmanager
def adapter_off(model: nn.Module) -> Iterator[None]:
    """The base under the adapters, while this lasts."""
    layers = list(_adapted(model))
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name belongs to an adapter."""
    return _MARK in name


@torch.no_grad()
def merged_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """The weights that the model would have without adapters, by the names that it would have then.

    ``W + alpha / rank * B A`` where a layer has an adapter, computed in float32 at least and rounded once to the
    weight's dtype.
    """
    adapted = {*_adapted(module)}
    deltas = {
        f"{name}.weight": layer.get_delta_weight(ADAPTER) for name, layer in module.named_modules() if layer in adapted
    }
    merged = {}
    for name, tensor in named_weights(module).items():
        if is_adapter(name):
            continue
        plain = name.replace(_BASE, ".")
        delta = deltas.get(plain)
        wide = torch.promote_types(tensor.dtype, torch.float32)
        merged[plain] = tensor if delta is None else (tensor.to(wide) + delta.to(wide)).to(tensor.dtype)
    return merged


def _adapted(model: nn.Module) -> Iterator[Any]:
    if "peft" not in sys.modules:  # then nobody made an adapter; importing it takes seconds
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    yield from (part for part in model.modules() if isinstance(part, BaseTunerLayer))
