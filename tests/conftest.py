"""Its place puts this folder on the path, so that tests can share modules such as ``counter_env``."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def smollm2_tokenizer() -> Any:
    """The real tokenizer of SmolLM2; skipped where the extra ``smollm`` is not installed."""
    pytest.importorskip("gguf")
    from rllib_agentic.rl_module.model_loading import ModelSettings, load_tokenizer

    return load_tokenizer(ModelSettings(preset="smollm2"))
