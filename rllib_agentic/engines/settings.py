"""Which engine samples: the YAML section ``engine``."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from rllib_agentic.components import Family, Settings
from rllib_agentic.engines.engine import Engine


class HFEngineSettings(Settings):
    """The in-process engine over the runner's own weights.

    Attributes:
        max_batch_tokens: most tokens one forward reads; longer prompts are read in pieces.
        max_cached_tokens: bound on the tokens whose keys and values are kept between turns.
    """

    in_runner: ClassVar[bool] = True
    """Whether the engine samples in the runner's process, over the runner's own weights."""

    max_batch_tokens: int = Field(default=2048, ge=1)
    max_cached_tokens: int = Field(default=1 << 18, ge=2)

    def build(self, model: Any, tokenizer: Any) -> Engine:
        """An engine over ``model``, which stays the caller's."""
        from rllib_agentic.engines.hf import HFEngine

        return HFEngine(
            model, tokenizer, max_batch_tokens=self.max_batch_tokens, max_cached_tokens=self.max_cached_tokens
        )


ENGINES: Family[Settings] = Family(
    "engine", {"hf": HFEngineSettings, "vllm": "rllib_agentic.engines.vllm_settings:VLLMEngineSettings"}
)
