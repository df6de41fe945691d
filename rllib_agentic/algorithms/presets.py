"""The presets by name, imported when first used."""

from __future__ import annotations

import pickle
from importlib import import_module
from typing import TYPE_CHECKING

from rllib_agentic.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from rllib_agentic.algorithms.agentic import Agentic

PRESETS: dict[str, str] = {
    "AgentEvol": "rllib_agentic.algorithms.agent_evol:AgentEvol",
    "BiLevelGAE": "rllib_agentic.algorithms.bi_level_gae:BiLevelGAE",
    "CISPO": "rllib_agentic.algorithms.cispo:CISPO",
    "DAPO": "rllib_agentic.algorithms.dapo:DAPO",
    "DPO": "rllib_agentic.algorithms.dpo:DPO",
    "DrGRPO": "rllib_agentic.algorithms.dr_grpo:DrGRPO",
    "GRPO": "rllib_agentic.algorithms.grpo:GRPO",
    "GSPO": "rllib_agentic.algorithms.gspo:GSPO",
    "GiGPO": "rllib_agentic.algorithms.gigpo:GiGPO",
    "PPO_LLM": "rllib_agentic.algorithms.ppo:AgenticPPO",
    "RLOO": "rllib_agentic.algorithms.rloo:RLOO",
    "ReinforcePP": "rllib_agentic.algorithms.reinforce_pp:ReinforcePP",
    "ReinforcePPBaseline": "rllib_agentic.algorithms.reinforce_pp_baseline:ReinforcePPBaseline",
    "SAPO": "rllib_agentic.algorithms.sapo:SAPO",
    "SFT": "rllib_agentic.algorithms.sft:SFT",
    "StarPO": "rllib_agentic.algorithms.starpo:StarPO",
    "StarPO_S": "rllib_agentic.algorithms.starpo_s:StarPO_S",
    "StepGAE": "rllib_agentic.algorithms.step_gae:StepGAE",
    "ToRL": "rllib_agentic.algorithms.torl:ToRL",
}
"""Name in YAML and Tune to ``module:Class``; the config class has the same name with ``Config``."""


def algorithm_class(name: str) -> type[Agentic]:
    """The algorithm class of a preset.

    Raises:
        InputError: no such preset.
    """
    if name not in PRESETS:
        raise InputError(f"run: unknown algorithm {name!r}. {did_you_mean(name, PRESETS)}")
    module, _, attribute = PRESETS[name].partition(":")
    return getattr(import_module(module), attribute)


def run_name(algorithm: type) -> str:
    """What ``run`` says of an algorithm class: its name as a preset, or its own where it is none.

    Example:
        >>> run_name(algorithm_class("PPO_LLM"))
        'PPO_LLM'
    """
    target = f"{algorithm.__module__}:{algorithm.__qualname__}"
    return next((name for name, known in PRESETS.items() if known == target), algorithm.__name__)


def register_with_tune() -> None:
    """Make every preset known to Tune by name, without importing torch or RLlib now.

    Tune keeps trainables pickled. What is pickled here unpickles to the class itself, by importing its module then.

    Tune hands its names to the Ray that starts next and keeps none for the one after it. So they are laid out again
    after every start: a second ``ray.init`` of one process knows them like the first.
    """
    from ray._private import worker
    from ray.experimental.internal_kv import _internal_kv_initialized
    from ray.tune.registry import TRAINABLE_CLASS, _global_registry

    def lay_out() -> None:
        for name, target in PRESETS.items():
            _global_registry._to_flush[(TRAINABLE_CLASS, name)] = pickle.dumps(_Deferred(target))

    lay_out()
    if _internal_kv_initialized():
        _global_registry.flush_values()
        lay_out()
    worker._post_init_hooks.append(lay_out)


class _Deferred:
    def __init__(self, target: str) -> None:
        self._target = target

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        module, _, attribute = self._target.partition(":")
        return _import_attribute, (module, attribute)


def _import_attribute(module: str, attribute: str) -> object:
    return getattr(import_module(module), attribute)
