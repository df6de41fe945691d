"""What an engine elsewhere starts from: config and tokenizer of a model as a Hugging Face folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rllib_agentic.rl_module.model_loading import load_config, load_model, load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings
from rllib_agentic.rl_module.smollm2 import smollm2_folder


def inference_folder(settings: ModelSettings) -> str:
    """A folder (or a hub id) with the model's config and tokenizer.

    For preset ``tiny`` it is a new temporary folder, with weights only where the learner sends adapters alone.

    Raises:
        InputError: the model is not there.
    """
    if settings.preset == "smollm2":
        return str(smollm2_folder())
    if settings.path is not None:
        local = Path(settings.path).expanduser()
        return str(local) if local.is_dir() else settings.path
    folder = tempfile.mkdtemp(prefix="rllib_agentic-tiny-")
    config = load_config(settings)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    if sends_adapters(settings):
        load_model(settings).save_pretrained(folder)
    load_tokenizer(settings).save_pretrained(folder)
    return folder


def sends_adapters(settings: ModelSettings) -> bool:
    """Whether the learner sends adapters in place of whole weights."""
    return settings.lora is not None and settings.lora.sync == "adapter"
