"""The policy: a causal language model as an RLlib RLModule, where its weights come from and where they go."""

from typing import TYPE_CHECKING, Any

from rllib_agentic.rl_module.model_loading import load_config, load_model, load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings

if TYPE_CHECKING:
    from rllib_agentic.rl_module.export import export_hf
    from rllib_agentic.rl_module.llm_rl_module import LLMTorchRLModule

__all__ = ["LLMTorchRLModule", "ModelSettings", "export_hf", "load_config", "load_model", "load_tokenizer"]


def __getattr__(name: str) -> Any:
    """Import what needs Ray only when it is asked for: environments and renderers use the tokenizer without Ray."""
    if name == "LLMTorchRLModule":
        from rllib_agentic.rl_module.llm_rl_module import LLMTorchRLModule

        return LLMTorchRLModule
    if name == "export_hf":
        from rllib_agentic.rl_module.export import export_hf

        return export_hf
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
