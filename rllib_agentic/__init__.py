"""Reinforcement learning of LLM agents over long horizons, native to Ray RLlib.

Importing this package registers every preset with Tune by name (``tune.Tuner("GRPO", ...)``) and imports neither torch
nor RLlib; the names below are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rllib_agentic.algorithms.presets import register_with_tune

_PUBLIC = {
    "AgenticConfig": "rllib_agentic.algorithms.config",
    "GRPO": "rllib_agentic.algorithms.grpo",
    "GRPOConfig": "rllib_agentic.algorithms.grpo",
    "LLMTorchRLModule": "rllib_agentic.rl_module.llm_rl_module",
    "TokenEnv": "rllib_agentic.envs.token_env",
    "TrajectoryReader": "rllib_agentic.store",
    "check_env": "rllib_agentic.envs.checker",
    "make_env": "rllib_agentic.envs.registry",
}

__all__ = sorted(_PUBLIC)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_PUBLIC]


register_with_tune()
