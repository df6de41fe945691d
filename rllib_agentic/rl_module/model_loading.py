"""From settings to a model and its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast
from transformers.configuration_utils import PretrainedConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from rllib_agentic.rl_module.model_settings import ModelSettings
from rllib_agentic.rl_module.pretrained import read_config, read_generation_config, read_model, read_tokenizer
from rllib_agentic.rl_module.smollm2 import smollm2_folder

__all__ = ["ModelSettings", "load_config", "load_model", "load_stop_ids", "load_tokenizer"]

_TINY = Path(__file__).parent / "tiny"


def load_tokenizer(settings: ModelSettings) -> PreTrainedTokenizerBase:
    """The tokenizer alone, for environments and renderers.

    Raises:
        InputError: the model is not there; the message says what to do.

    Example:
        >>> tokenizer = load_tokenizer(ModelSettings(preset="tiny"))
        >>> tokenizer.decode(tokenizer.encode("go left 12", add_special_tokens=False))
        'go left 12'
    """
    if settings.preset == "tiny":
        return PreTrainedTokenizerFast.from_pretrained(_TINY)
    return read_tokenizer(_source(settings), trust_remote_code=settings.trust_remote_code)


def load_config(settings: ModelSettings) -> PretrainedConfig:
    """The model's shape without its weights: whether it exists, how large it would be.

    Raises:
        InputError: as :func:`load_tokenizer`.
    """
    if settings.preset == "tiny":
        return _tiny_config(settings)
    return read_config(_source(settings), trust_remote_code=settings.trust_remote_code)


def load_stop_ids(settings: ModelSettings) -> tuple[int, ...]:
    """The ids that end a turn by the model's generation config (or its config), without its weights.

    Raises:
        InputError: as :func:`load_tokenizer`.
    """
    config = load_config(settings)
    ends = config.eos_token_id
    if settings.preset != "tiny":
        ends = read_generation_config(_source(settings), config).eos_token_id
    return () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)


def load_model(settings: ModelSettings, *, seed: int | None = None) -> PreTrainedModel:
    """The causal language model on the CPU, in evaluation mode.

    Args:
        settings: which, and how.
        seed: of random weights, where the settings leave it open. None draws one from torch's generator, which RLlib
            seeds with the run's seed.

    Raises:
        InputError: as :func:`load_tokenizer`, or the weights do not fit the config.
    """
    if settings.preset == "tiny":
        model = _tiny_model(settings, settings.seed if settings.seed is not None else seed)
    else:
        dtype = settings.dtype if settings.dtype == "auto" else getattr(torch, settings.dtype)
        options: dict[str, Any] = {"trust_remote_code": settings.trust_remote_code}
        if settings.attn_implementation is not None:
            options["attn_implementation"] = settings.attn_implementation
        model = read_model(_source(settings), dtype, **options)
    # Which tokens are padding is known from recorded lengths. Where PAD is also EOS (SmolLM2), torch would leave the
    # input embedding of every end of turn without its gradient.
    model.get_input_embeddings().padding_idx = None
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.eval()


def _source(settings: ModelSettings) -> str:
    return str(smollm2_folder()) if settings.preset == "smollm2" else str(settings.path)


def _tiny_config(settings: ModelSettings) -> LlamaConfig:
    tokenizer = load_tokenizer(settings)
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        intermediate_size=4 * settings.hidden_size,
        num_hidden_layers=settings.num_layers,
        num_attention_heads=settings.num_heads,
        max_position_embeddings=settings.max_positions,
        initializer_range=settings.initializer_range,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attn_implementation=settings.attn_implementation,
    )


def _tiny_model(settings: ModelSettings, seed: int | None) -> PreTrainedModel:
    if seed is None:
        seed = int(torch.randint(2**31, ()))
    dtype = torch.bfloat16 if settings.dtype == "bfloat16" else torch.float32
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # Casting a finished model would round its rotary frequencies too.
        return AutoModelForCausalLM.from_config(_tiny_config(settings), dtype=dtype)
