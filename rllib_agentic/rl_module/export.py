"""From a trained module or a checkpoint to a Hugging Face folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.utils.checkpoints import Checkpointable
from safetensors.torch import save_file

from rllib_agentic.errors import InputError
from rllib_agentic.rl_module.llm_rl_module import LLMTorchRLModule
from rllib_agentic.rl_module.lora import ADAPTER, has_lora, is_adapter, lora_config, merged_weights
from rllib_agentic.rl_module.model_loading import load_model
from rllib_agentic.rl_module.weights import named_weights, read_weights, write_weights

_IN_ALGORITHM = Path(COMPONENT_LEARNER_GROUP, COMPONENT_LEARNER, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID)


def export_hf(source: LLMTorchRLModule | str | Path, folder: str | Path) -> Path:
    """Write config, weights (safetensors), tokenizer and generation config; the critic is left out.

    ``AutoModelForCausalLM.from_pretrained(folder)`` and ``AutoTokenizer.from_pretrained(folder)`` load the result,
    without this package. The folder appears whole or not at all.

    Args:
        source: a module, or a checkpoint folder of an Algorithm, a LearnerGroup, a Learner or an RLModule.
        folder: where to write; must not exist, or be empty.

    Returns:
        The folder.

    Raises:
        InputError: no checkpoint with such a module there, or the folder is taken.
    """
    module = source if isinstance(source, LLMTorchRLModule) else restored_module(Path(source).expanduser())

    def write(aside: Path) -> None:
        _plain_model(module).save_pretrained(aside)
        module.tokenizer.save_pretrained(aside)

    return _written(Path(folder).expanduser(), write)


def _written(folder: Path, write: Callable[[Path], None]) -> Path:
    """Let a folder appear whole or not at all."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"export: {str(folder)!r} exists and is not empty; name another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        write(aside)
        aside.chmod(0o755)
        aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return folder


def _plain_model(module: LLMTorchRLModule) -> Any:
    """The module's model without adapters: a new one with the merged weights where it has some."""
    if not has_lora(module.model):
        return module.model
    model = load_model(module.settings.model_copy(update={"lora": None}))
    write_weights(model, read_weights(merged_weights(module.model)))
    return model


def export_adapter(source: LLMTorchRLModule | str | Path, folder: str | Path) -> Path:
    """Write the adapters alone, as peft does: ``PeftModel.from_pretrained(base, folder)`` loads them.

    Args:
        source: as of :func:`export_hf`; its model must have adapters.
        folder: where to write; must not exist, or be empty.

    Returns:
        The folder.

    Raises:
        InputError: no adapters there, or the folder is taken.
    """
    module = source if isinstance(source, LLMTorchRLModule) else restored_module(Path(source).expanduser())
    lora = module.settings.lora
    if lora is None or not has_lora(module.model):
        raise InputError("export: this policy was trained without adapters (model.lora)")
    config = lora_config(lora)
    config.base_model_name_or_path = module.settings.path or module.settings.name
    weights = {
        f"base_model.{name.replace(f'.{ADAPTER}.', '.')}": tensor.detach().cpu().contiguous()
        for name, tensor in named_weights(module).items()
        if is_adapter(name)
    }

    def write(aside: Path) -> None:
        config.save_pretrained(aside)
        save_file(weights, aside / "adapter_model.safetensors", metadata={"format": "pt"})

    return _written(Path(folder).expanduser(), write)


def restored_module(checkpoint: Path) -> LLMTorchRLModule:
    """The module that a checkpoint of an Algorithm, a LearnerGroup, a Learner or an RLModule holds.

    Raises:
        InputError: there is none.
    """
    if not checkpoint.is_dir():
        raise InputError(f"export: there is no checkpoint folder {str(checkpoint)!r}")
    for depth in range(len(_IN_ALGORITHM.parts) + 1):
        candidate = checkpoint.joinpath(*_IN_ALGORITHM.parts[depth:]).resolve()
        if (candidate / Checkpointable.CLASS_AND_CTOR_ARGS_FILE_NAME).is_file() and _is_module(candidate):
            return LLMTorchRLModule.from_checkpoint(str(candidate))
    raise InputError(
        f"export: {str(checkpoint)!r} is no checkpoint of an LLMTorchRLModule (looked for {str(_IN_ALGORITHM)!r} in it)"
    )


def _is_module(folder: Path) -> bool:
    return any(path.name.startswith(LLMTorchRLModule.STATE_FILE_NAME) for path in folder.iterdir())
