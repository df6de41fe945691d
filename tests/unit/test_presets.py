"""Presets: each can be found by name, pickled, started from its defaults, and is what its paper says."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from ray.tune.registry import get_trainable_cls

import rllib_agentic
from rllib_agentic.algorithms.agentic import Agentic
from rllib_agentic.algorithms.presets import PRESETS, algorithm_class, run_name
from rllib_agentic.algorithms.sections import Sections
from rllib_agentic.errors import InputError

NAMES = sorted(PRESETS)


def sections_of(name: str, **changes: Any) -> Sections:
    config = algorithm_class(name).get_default_config()
    return config.update_from_dict({"env": "frozenlake", **changes}).sections()


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_found_everywhere_by_its_name(name: str) -> None:
    algorithm = algorithm_class(name)
    assert issubclass(algorithm, Agentic)
    assert get_trainable_cls(name) is algorithm
    assert run_name(algorithm) == name
    assert getattr(rllib_agentic, algorithm.__name__) is algorithm
    assert getattr(rllib_agentic, f"{algorithm.__name__}Config") is algorithm.config_class
    assert pickle.loads(pickle.dumps(algorithm)) is algorithm


@pytest.mark.parametrize("name", NAMES)
def test_config_and_algorithm_know_each_other(name: str) -> None:
    algorithm = algorithm_class(name)
    assert algorithm.config_class().algo_class is algorithm
    default = algorithm.get_default_config()
    assert type(default) is algorithm.config_class and default.algo_class is algorithm

    class Other(algorithm):  # type: ignore[valid-type, misc]
        """Somebody's own, with the preset's defaults."""

    assert Other.get_default_config().algo_class is Other
    assert run_name(Other) == "Other"


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_consistent_and_survive_dicts(name: str) -> None:
    config = algorithm_class(name).get_default_config().environment("frozenlake")
    again = algorithm_class(name).get_default_config().update_from_dict(config.to_dict())
    assert again.sections() == config.sections()
    config.validate()


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(InputError, match="'GRPO'"):
        algorithm_class("GRP0")


def test_what_sets_each_apart() -> None:
    """The settings that make the methods what they are, read off the papers and not off the code."""
    assert {n: algorithm_class(n).offline_use for n in NAMES if algorithm_class(n).offline_use != "never"} == {
        "SFT": "always",
        "DPO": "sometimes",
        "AgentEvol": "sometimes",
    }
    assert {n for n in NAMES if sections_of(n).learner_setup().loss.pairwise} == {"DPO"}
    assert {n for n in NAMES if sections_of(n).learner_setup().needs_reference} == {
        "DPO", "ReinforcePP", "ReinforcePPBaseline", "StarPO", "StepGAE", "GiGPO",
    }  # fmt: skip
    assert {n for n in NAMES if getattr(sections_of(n).advantages, "weight", None) == "return"} == {"AgentEvol"}
    critics = {"PPO_LLM", "StarPO_S", "BiLevelGAE", "StepGAE"}
    assert {name for name in NAMES if sections_of(name).needs_critic} == critics
    assert {n for n in NAMES if sections_of(n).module_config()["value_head"]} == critics
    assert {n for n in NAMES if sections_of(n).filters} == {"DAPO", "StarPO_S"}
    assert {n for n in NAMES if sections_of(n).refill.resample} == {"DAPO"}
    clip_higher = {n for n in NAMES if getattr(sections_of(n).loss, "clip_high", 0) == 0.28}
    assert clip_higher == {"DAPO", "StarPO_S", "BiLevelGAE"}
    no_std = {n for n in NAMES if getattr(sections_of(n).advantages, "scale", None) == "none"}
    assert no_std == {"DrGRPO", "GiGPO"}
    pulled = {n for n in NAMES if sections_of(n).learner.kl.coefficient > 0}
    assert pulled == {"ReinforcePP", "ReinforcePPBaseline", "StarPO", "StepGAE", "GiGPO"}
    in_reward = {n for n in NAMES if sections_of(n).learner.kl.place == "reward"}
    assert in_reward == {"PPO_LLM", "RLOO", "ReinforcePP"}
    assert {n for n in NAMES if sections_of(n).loss.sequence_level} == {"GSPO"}
    torl = sections_of("ToRL")
    assert (torl.learner.entropy_coefficient, torl.learner.kl.coefficient, torl.rewards.environment) == (0.0, 0.0, 0.0)
    assert torl.rewards.outcome is not None
    assert (torl.rewards.outcome.success, torl.rewards.outcome.failure) == (1.0, -1.0)
    assert {n for n in NAMES if sections_of(n).rewards.overlong} == {"DAPO"}
    assert {n: sections_of(n).learner.aggregation for n in ("GRPO", "DrGRPO", "DAPO", "RLOO", "GSPO", "CISPO")} == {
        "GRPO": "sequence_mean_token_mean",
        "DrGRPO": "sum_over_constant",
        "DAPO": "token_mean",
        "RLOO": "sequence_mean_token_sum",
        "GSPO": "sequence_mean_token_mean",
        "CISPO": "token_mean",
    }


def test_users_lay_their_settings_over_a_preset() -> None:
    mine = sections_of("DAPO", loss={"clip_high": 0.3}, rewards={"overlong": None}, filters=[])
    assert (mine.loss.clip_low, mine.loss.clip_high) == (0.2, 0.3)
    assert mine.rewards.overlong is None and mine.filters == () and mine.refill.resample
