"""How much memory a run needs, estimated from the model's shape and the limits of rollout and learner."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rllib_agentic.algorithms.config import AgenticConfig
from rllib_agentic.errors import InputError
from rllib_agentic.rl_module.lora import adapter_parameters
from rllib_agentic.rl_module.model_loading import load_config
from rllib_agentic.rl_module.model_settings import ModelSettings

_BYTES = {"float32": 4, "bfloat16": 2, "auto": 2}
_MASTER_BYTES = 16  # float32 weight, gradient and two Adam moments
# What one layer keeps for the backward pass of one token: so many times the hidden size and so many times the width of
# the MLP. Fitted to measured peaks of SmolLM2-135M (docs/scaling.md), which include what the allocator cannot reuse.
_OF_HIDDEN, _OF_MLP = 27, 4
_CHECKPOINTED = 0.32  # the part of it that is left at the peak with gradient checkpointing
# Engine hf grows its buffers by a quarter, and not all that is outgrown is used again. A pass needs of each token in
# its batch so many hidden sizes and so many widths of the MLP. Fitted in the same way.
_CACHE_SLACK = 1.5
_PASS_OF_HIDDEN, _PASS_OF_MLP = 25, 10


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The numbers of a model that memory depends on; ``known`` is false where only its name was there to go by.

    ``adapters`` counts the parameters of LoRA adapters; None where all parameters are trained.
    """

    parameters: int
    layers: int
    hidden: int
    mlp: int
    key_value_width: int
    known: bool
    adapters: int | None = None


def model_shape(settings: ModelSettings) -> ModelShape:
    """The shape of a model, from its config; from its name where it is on a hub that is out of reach.

    Raises:
        InputError: there is no such model, and its name says nothing about its size.
    """
    try:
        config = load_config(settings)
    except InputError:
        size = re.search(r"(\d+(?:\.\d+)?)\s*([BM])\b", settings.path or "", re.IGNORECASE)
        if size is None or not _is_hub_id(settings.path):
            raise
        parameters = float(size[1]) * (1e9 if size[2].upper() == "B" else 1e6)
        hidden = round((parameters / 12 / 28) ** 0.5)
        # A block has about 20 times the hidden size in widths of linear layers.
        adapters = None if settings.lora is None else 20 * settings.lora.rank * hidden * 28
        return ModelShape(int(parameters), 28, hidden, 4 * hidden, hidden // 4, known=False, adapters=adapters)
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=settings.trust_remote_code)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    parameters = sum(p.numel() for p in model.parameters())
    adapters = None if settings.lora is None else adapter_parameters(model, settings.lora)
    mlp = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    return ModelShape(
        parameters, config.num_hidden_layers, config.hidden_size, mlp, heads * head, known=True, adapters=adapters
    )


def estimate_memory(config: AgenticConfig) -> dict[str, Any]:
    """Gigabytes for the model in a learner, in a runner or a replica of its engine, and for the cache in there.

    The learner holds float32 weights, gradients and Adam's two moments (16 bytes a parameter, and 4 more for a
    reference policy), and the activations of one micro-batch; who samples holds weights and cache. What processes need
    without a model is not in here. With adapters the 16 bytes are theirs alone, the base keeps its own width, and a
    reference policy costs nothing. ``benchmarks/memory.py`` compares with measured peaks.
    """
    sections = config.sections()
    shape = model_shape(sections.model)
    learner = sections.learner
    width = _BYTES[sections.model.dtype]
    reference = 4 if sections.learner_setup().needs_reference else 0
    tokens = max(learner.max_tokens_per_micro_batch, sections.rollout.max_context_tokens)
    kept = _CHECKPOINTED if sections.model.gradient_checkpointing else 1.0
    compute = 2 if learner.dtype == "bfloat16" or (learner.dtype == "auto" and width == 2) else 4
    per_layer = _OF_HIDDEN * shape.hidden + _OF_MLP * shape.mlp
    activations = tokens * shape.layers * per_layer * kept * compute + learner.max_logits * 4 * 3
    if shape.adapters is None:
        held = shape.parameters * (_MASTER_BYTES + reference)
    else:
        held = shape.parameters * width + shape.adapters * _MASTER_BYTES
    if sections.critic is not None and sections.needs_critic:
        held += model_shape(sections.critic).parameters * _MASTER_BYTES
    gb = 1e-9
    found = {
        "parameters_million": round(shape.parameters / 1e6, 2),
        "learner_gb": round((held + activations) * gb, 2),
    }
    if sections.engine.in_runner:
        cached = _live_episodes(config, max(config.num_env_runners, 1)) * sections.rollout.max_context_tokens
        cached = min(cached, getattr(sections.engine, "max_cached_tokens", cached))
        cache = _CACHE_SLACK * cached * _cache_bytes(shape, width)
        per_token = _PASS_OF_HIDDEN * shape.hidden + _PASS_OF_MLP * shape.mlp
        passed = getattr(sections.engine, "max_batch_tokens", 2048) * per_token * width
        found["env_runner_gb"] = round((shape.parameters * width + cache + passed) * gb, 2)
    else:
        engine = sections.engine
        width = _BYTES.get(engine.dtype or sections.model.dtype, 2)
        live = min(engine.max_num_seqs, _live_episodes(config, engine.num_replicas))
        wanted = live * sections.rollout.max_context_tokens * _cache_bytes(shape, width)
        cache = wanted if engine.kv_cache_gb is None else engine.kv_cache_gb * 1e9
        found["env_runner_gb"] = 0.0
        found["engine_gpu_gb"] = round((shape.parameters * width + cache) / engine.tensor_parallel_size * gb, 2)
    found["of_which_cache_gb"] = round(cache * gb, 2)
    source = "the model's config" if shape.known else "the model's name; its config is out of reach from here"
    return {**found, "from": source}


def _live_episodes(config: AgenticConfig, places: int) -> int:
    """Most episodes that one of so many places plays at a time."""
    rollout = config.sections().rollout
    out = rollout.group_size * rollout.groups_per_iteration * (rollout.max_staleness + 1)
    most = rollout.max_concurrent_episodes
    return min(most if config.sections().engine.in_runner else most * max(config.num_env_runners, 1), -(-out // places))


def _cache_bytes(shape: ModelShape, width: int) -> int:
    """Keys and values of one token."""
    return shape.layers * shape.key_value_width * 2 * width


def _is_hub_id(path: str | None) -> bool:
    return (
        path is not None and path.count("/") == 1 and not path.startswith((".", "/", "~")) and not Path(path).exists()
    )
