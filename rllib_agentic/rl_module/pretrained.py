"""Hugging Face folders and hub ids, read so that whatever is wrong with them is said in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.configuration_utils import PretrainedConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from rllib_agentic.errors import InputError

# What transformers raises for a source that is no model, is broken, or whose shapes contradict its config.
_FAULTS = (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError)


def read_config(source: str, **options: Any) -> PretrainedConfig:
    """The model's config alone: cheap, and enough to know whether the model is there.

    Raises:
        InputError: no such folder or hub id, or no model in it.
    """
    with _explained(source):
        return AutoConfig.from_pretrained(_located(source), **options)


def read_tokenizer(source: str, **options: Any) -> PreTrainedTokenizerBase:
    """The model's tokenizer.

    Raises:
        InputError: as :func:`read_config`.
    """
    with _explained(source):
        return AutoTokenizer.from_pretrained(_located(source), **options)


def read_generation_config(source: str, config: PretrainedConfig) -> GenerationConfig:
    """How the model is meant to be sampled; made of the model's config where nothing else was saved.

    Raises:
        InputError: as :func:`read_config`.
    """
    with _explained(source):
        try:
            return GenerationConfig.from_pretrained(_located(source))
        except OSError:
            return GenerationConfig.from_model_config(config)


def read_model(source: str, dtype: torch.dtype | str, **options: Any) -> PreTrainedModel:
    """The model with all its weights; one copy in memory at any time.

    Raises:
        InputError: as :func:`read_config`; or the weights do not fit the config (transformers would give missing
            ones random values and go on).
    """
    with _explained(source):
        model, info = AutoModelForCausalLM.from_pretrained(
            _located(source), dtype=dtype, output_loading_info=True, low_cpu_mem_usage=True, **options
        )
    faults = [
        f"{kind.replace('_', ' ')}: {_some(info[kind])}" for kind in ("missing_keys", "mismatched_keys") if info[kind]
    ]
    if faults:
        raise InputError(f"model: the weights in {source!r} do not fit its config.json; {'; '.join(faults)}")
    return model


def _located(source: str) -> str:
    folder = Path(source).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(f"model.path: {str(folder)!r} is no Hugging Face model folder: it has no config.json")
        return str(folder)
    if folder.exists():
        raise InputError(f"model.path: {str(folder)!r} is a file; a Hugging Face model folder was expected")
    if source.count("/") != 1 or source.startswith((".", "~", "/")):
        raise InputError(
            f"model.path: there is no folder {str(folder)!r}, and {source!r} is no hub id of the form 'owner/name'"
        )
    return source


@contextmanager
def _explained(source: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except _FAULTS as error:
        reason = " ".join(str(error).split())[:300]
        where = (
            "this folder cannot be loaded as a causal language model"
            if Path(source).expanduser().is_dir()
            else "there is no such local folder, and the hub did not give it (no network, no such id, or no access)"
        )
        raise InputError(f"model.path {source!r}: {where}. {type(error).__name__}: {reason}") from error


def _some(keys: Any, most: int = 3) -> str:
    names = sorted(str(key) for key in keys)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
