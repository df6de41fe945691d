"""Reinforcement learning of LLM agents over long horizons, native to Ray RLlib.

Importing this package registers every preset with Tune by name (``tune.Tuner("GRPO", ...)``) and imports neither torch
nor RLlib; the names below are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rllib_agentic.algorithms.presets import register_with_tune

_PUBLIC = {
    "AgentEvol": "rllib_agentic.algorithms.agent_evol",
    "AgentEvolConfig": "rllib_agentic.algorithms.agent_evol",
    "AgenticConfig": "rllib_agentic.algorithms.config",
    "AgenticPPO": "rllib_agentic.algorithms.ppo",
    "AgenticPPOConfig": "rllib_agentic.algorithms.ppo",
    "BiLevelGAE": "rllib_agentic.algorithms.bi_level_gae",
    "BiLevelGAEConfig": "rllib_agentic.algorithms.bi_level_gae",
    "CISPO": "rllib_agentic.algorithms.cispo",
    "CISPOConfig": "rllib_agentic.algorithms.cispo",
    "DAPO": "rllib_agentic.algorithms.dapo",
    "DAPOConfig": "rllib_agentic.algorithms.dapo",
    "DPO": "rllib_agentic.algorithms.dpo",
    "DPOConfig": "rllib_agentic.algorithms.dpo",
    "DrGRPO": "rllib_agentic.algorithms.dr_grpo",
    "DrGRPOConfig": "rllib_agentic.algorithms.dr_grpo",
    "GRPO": "rllib_agentic.algorithms.grpo",
    "GRPOConfig": "rllib_agentic.algorithms.grpo",
    "GSPO": "rllib_agentic.algorithms.gspo",
    "GSPOConfig": "rllib_agentic.algorithms.gspo",
    "GiGPO": "rllib_agentic.algorithms.gigpo",
    "GiGPOConfig": "rllib_agentic.algorithms.gigpo",
    "LLMTorchRLModule": "rllib_agentic.rl_module.llm_rl_module",
    "RLOO": "rllib_agentic.algorithms.rloo",
    "RLOOConfig": "rllib_agentic.algorithms.rloo",
    "ReinforcePP": "rllib_agentic.algorithms.reinforce_pp",
    "ReinforcePPBaseline": "rllib_agentic.algorithms.reinforce_pp_baseline",
    "ReinforcePPBaselineConfig": "rllib_agentic.algorithms.reinforce_pp_baseline",
    "ReinforcePPConfig": "rllib_agentic.algorithms.reinforce_pp",
    "SAPO": "rllib_agentic.algorithms.sapo",
    "SAPOConfig": "rllib_agentic.algorithms.sapo",
    "SFT": "rllib_agentic.algorithms.sft",
    "SFTConfig": "rllib_agentic.algorithms.sft",
    "StarPO": "rllib_agentic.algorithms.starpo",
    "StarPOConfig": "rllib_agentic.algorithms.starpo",
    "StarPO_S": "rllib_agentic.algorithms.starpo_s",
    "StarPO_SConfig": "rllib_agentic.algorithms.starpo_s",
    "StepGAE": "rllib_agentic.algorithms.step_gae",
    "StepGAEConfig": "rllib_agentic.algorithms.step_gae",
    "ToRL": "rllib_agentic.algorithms.torl",
    "ToRLConfig": "rllib_agentic.algorithms.torl",
    "TokenEnv": "rllib_agentic.envs.token_env",
    "Tool": "rllib_agentic.tools",
    "ToolEnv": "rllib_agentic.tools",
    "ToolError": "rllib_agentic.tools",
    "ToolResult": "rllib_agentic.tools",
    "TrajectoryReader": "rllib_agentic.store",
    "check_env": "rllib_agentic.envs.checker",
    "make_env": "rllib_agentic.envs.registry",
    "tool": "rllib_agentic.tools",
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
