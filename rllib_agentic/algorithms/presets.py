"""The presets by name, imported when first used."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
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
    """
    from ray.experimental.internal_kv import _internal_kv_initialized
    from ray.tune.registry import _global_registry

    _global_registry._to_flush = _Kept(_global_registry._to_flush)
    if _internal_kv_initialized():
        _global_registry.flush_values()


class _Kept(dict[tuple[str, str], bytes]):
    """What Tune has yet to tell Ray.

    Tune clears this once it has told the Ray that runs, and so has nothing for one that starts later in the process.
    Our names stay: they are told again.
    """

    def __init__(self, waiting: Mapping[tuple[str, str], bytes]) -> None:
        super().__init__(waiting)
        self._lay_out()

    def clear(self) -> None:
        super().clear()
        self._lay_out()

    def _lay_out(self) -> None:
        from ray.tune.registry import TRAINABLE_CLASS

        for name, target in PRESETS.items():
            self[TRAINABLE_CLASS, name] = pickle.dumps(_Deferred(target))


class _Deferred:
    def __init__(self, target: str) -> None:
        self._target = target

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        module, _, attribute = self._target.partition(":")
        return _import_attribute, (module, attribute)


def _import_attribute(module: str, attribute: str) -> object:
    return getattr(import_module(module), attribute)
