"""The configuration: nothing misspelt, contradictory or dead goes through in silence."""

from typing import Any

import pytest
from ray import tune
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.callbacks.callbacks import RLlibCallback

from rllib_agentic.algorithms.config import AgenticConfig
from rllib_agentic.algorithms.dead_keys import DEAD_KEYS
from rllib_agentic.algorithms.grpo import GRPO, GRPOConfig
from rllib_agentic.algorithms.keys import check_types, has_search_space, merge_section
from rllib_agentic.algorithms.sections import SECTIONS
from rllib_agentic.errors import InputError


def config(**changes: Any) -> AgenticConfig:
    return GRPOConfig().environment("frozenlake").update_from_dict(changes)


def test_every_fault_is_in_one_message_with_the_nearest_name() -> None:  # UX01
    with pytest.raises(InputError) as caught:
        config(rollout={"max_turn": 10}, learning_rate=1e-6, seeed=3, advantages={"type": "grop"})
    message = str(caught.value)
    for part in ("max_turn:", "'max_turns'", "learning_rate", "'lr'", "seeed", "'seed'", "'grpo'"):
        assert part in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rollout": {"group_size": 1}}, ["group_size", "at least 2"]),
        ({"rollout": {"max_context_tokens": 80, "max_tokens_per_turn": 100}}, ["max_tokens_per_turn", "80"]),
        ({"rollout": {"max_tokens_per_episode": 10, "max_tokens_per_turn": 20}}, ["max_tokens_per_episode"]),
        ({"rollout": {"temperature": 0.0}}, ["temperature", "above 0"]),
        ({"rollout": {"top_p": 0.9}}, ["top_p", "truncate"]),  # AL17
        ({"rollout": {"top_k": 5}}, ["top_k", "truncate"]),
        ({"rollout": {"group_size": 4, "groups_per_iteration": 3}, "minibatch_size": 10}, ["minibatch_size", "12"]),
        (
            {"rollout": {"max_context_tokens": 512}, "context": {"type": "summary", "max_tokens": 600}},
            ["context.max_tokens", "600", "512"],
        ),
        (
            {"rollout": {"groups_per_iteration": 4}, "filters": [{"type": "reward_variance", "rule": "top_k", "k": 8}]},
            ["filters[0].k", "8 is more than the 4 groups"],
        ),
        (
            {
                "advantages": {"type": "reinforce_pp"},
                "rollout": {"group_size": 1},
                "filters": [{"type": "overlong"}, {"type": "success_rate"}],
            },
            ["filters[1]", "group_size must be at least 2"],
        ),
        (
            {
                "advantages": {"type": "reinforce_pp"},
                "rollout": {"group_size": 1},
                "filters": [{"type": "reward_variance"}],
            },
            ["filters[0]", "no group would be kept"],
        ),
        ({"rollout": {"group_size": 4, "groups_per_iteration": 3}, "minibatch_size": 24}, ["minibatch_size", "12"]),
        ({"learner": {"lr": 1e-6}}, ["learner.lr", "config.lr"]),
        ({"lr": "fast"}, ["lr", "'fast'"]),
        ({"num_env_runners": "two"}, ["num_env_runners", "'two'"]),
        ({"rollout": {"max_turns": "many"}}, ["max_turns", "'many'"]),
        ({"rollout": [1, 2]}, ["rollout", "mapping"]),
        ({"model": {"preset": "huge"}}, ["preset", "'huge'"]),
        ({"model": {"preset": "tiny", "path": "x/y"}}, ["exactly one"]),
        ({"filters": {"type": "reward_variance"}}, ["filters", "list"]),
        ({"filters": [{"rule": "top_p"}]}, ["filters[0]", "'type'"]),
        ({"curriculum": {"type": "scaling_inter", "max_turns": [30, 10]}}, ["growing"]),
        ({"env_config": {"splt": "train"}}, ["splt", "'split'"]),
        ({"env": "frozen_lake"}, ["frozen_lake", "'frozenlake'"]),
        ({"env": 3}, ["env", "3"]),
        ({"train_batch_size": 10}, ["train_batch_size", "groups_per_iteration"]),
        ({"sample_timeout_s": 0.1}, ["sample_timeout_s", "rollout.episode_timeout_s"]),  # FT07
        ({"gamma": 0.9, "rollout": {"top_k": 5}}, ["config.gamma", "advantages.gamma", "top_k"]),
        ({"evaluation_duration": "auto"}, ["evaluation_duration", "'auto'"]),
        ({"evaluation_samples_per_task": 0}, ["evaluation_samples_per_task", "at least 1"]),
        ({"engine": {"max_cached_tokens": 1000}}, ["max_context_tokens", "2048", "max_cached_tokens"]),
        ({"renderer": {"earlier_reasoning": "dropped"}}, ["earlier_reasoning", "'as_template'", "'kept'"]),
        ({"renderer": {"template_kwargs": {"tools": []}}}, ["template_kwargs", "tools"]),
    ],
)
def test_contradictions_and_wrong_values_stop_the_start(changes: dict[str, Any], words: list[str]) -> None:  # UX02
    with pytest.raises(InputError) as caught:
        config(**changes).validate()
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rollout": {"max_context_tokens": 9000}}, ["max_context_tokens", "9000", "8192", "'tiny'"]),
        ({"model": {"preset": "tiny", "max_positions": 1024}}, ["2048", "1024"]),
        ({"model": {"path": "no/such/folder"}}, ["no/such/folder"]),
        ({"renderer": {"chat_template": "no/such.jinja"}}, ["renderer.chat_template", "no/such.jinja"]),
    ],
)
def test_what_the_model_cannot_do_stops_the_start(changes: dict[str, Any], words: list[str]) -> None:
    ready = config(**changes)
    ready.validate()  # needs no model
    with pytest.raises(InputError) as caught:
        ready.sections().check_model()
    assert all(word in str(caught.value) for word in words), str(caught.value)
    config(rollout={"max_context_tokens": 8192}).sections().check_model()


def test_evaluation_may_be_greedy_and_truncated() -> None:
    ready = config(evaluation_config={"rollout": {"temperature": 0.0, "top_p": 0.9}, "env_config": {"split": "test"}})
    ready.validate()
    held_out = ready.get_evaluation_config_object().sections()
    assert (held_out.rollout.temperature, held_out.rollout.top_p, held_out.env_config.split) == (0.0, 0.9, "test")
    assert ready.sections().rollout.temperature == 1.0
    again = ready.evaluation(evaluation_config={"rollout": {"top_p": 1.0}}).get_evaluation_config_object().sections()
    assert (again.rollout.temperature, again.rollout.top_p) == (0.0, 1.0)


def test_a_config_survives_the_dicts_of_tune_and_checkpoints() -> None:
    first = config(rollout={"group_size": 4}, filters=[{"type": "reward_variance", "rule": "top_p", "p": 0.9}], lr=1e-6)
    second = GRPOConfig().update_from_dict(first.to_dict())
    third = GRPOConfig.from_state(first.get_state())
    assert first.sections() == second.sections() == third.sections()
    assert second.sections().learner.lr == 1e-6


def test_search_spaces_work_at_any_depth_and_wait_for_tune() -> None:
    space = config(rollout={"group_size": tune.grid_search([4, 8])}, filters=[{"type": {"grid_search": ["overlong"]}}])
    assert has_search_space(space.rollout) and has_search_space(space.filters)
    assert not has_search_space({"a": [{"b": 1}]})
    assert space.update_from_dict({"rollout": {"group_size": 8}, "filters": []}).sections().rollout.group_size == 8


def test_a_new_type_starts_a_section_afresh() -> None:
    assert merge_section({"type": "a", "x": 1}, {"type": "b"}) == {"type": "b"}
    assert merge_section({"x": {"y": 1, "z": 2}}, {"x": {"y": 3}}) == {"x": {"y": 3, "z": 2}}
    assert config(advantages={"type": "rloo"}).sections().advantages.__class__.__name__ == "RLOOEstimator"


def test_chained_setters_take_sections_as_rllib_takes_its_own() -> None:
    ready = (
        GRPOConfig()
        .environment("frozenlake", env_config={"backend": "local"})
        .env_runners(num_env_runners=2, rollout={"max_turns": 7}, context="append_only")
        .training(lr=1e-4, loss={"clip_high": 0.28}, model={"preset": "tiny"})
        .reporting(store={"enabled": False})
    )
    sections = ready.sections()
    assert (sections.rollout.max_turns, sections.loss.clip_high, sections.loss.clip_low) == (7, 0.28, 0.2)
    assert (ready.num_env_runners, ready.lr, sections.store.enabled) == (2, 1e-4, False)


def test_the_dump_of_a_config_is_a_config() -> None:
    ready = config(
        filters=[{"type": "reward_variance", "rule": "top_k", "k": 8}], model={"preset": "tiny", "num_layers": 2}
    )
    dumped = {key: value for key, value in ready.resolved().items() if key in SECTIONS}
    assert GRPOConfig().environment("frozenlake").update_from_dict(dumped).sections() == ready.sections()


def test_the_seed_of_the_run_seeds_tiny_unless_the_model_has_its_own() -> None:
    assert config(seed=5).sections().module_config()["seed"] == 5
    assert config(seed=5, model={"preset": "tiny", "seed": 7}).sections().module_config()["seed"] == 7
    assert "seed" not in config(model={"path": "some/model"}).sections().module_config()
    assert config().sections().module_config()["value_head"] is False


def test_a_key_that_nothing_reads_may_keep_its_default_and_nothing_else() -> None:
    config(sample_timeout_s=60, gamma=0.99, normalize_actions=True, policies={"default_policy": None}).validate()
    for ready in (
        config().env_runners(batch_mode="complete_episodes"),
        config().evaluation(evaluation_num_env_runners=2),
    ):
        with pytest.raises(InputError, match="has no effect here"):
            ready.validate()
    missing = [key for key in DEAD_KEYS if not {key, f"_{key}"} & vars(AlgorithmConfig()).keys()]
    assert missing == []  # the list names keys that RLlib has


def test_callbacks_may_be_named_in_a_yaml() -> None:
    name = "ray.rllib.callbacks.callbacks:RLlibCallback"
    assert config(callbacks_class=[name]).callbacks_class == [RLlibCallback]
    assert config(callbacks=name).callbacks_class is RLlibCallback
    for wrong in ("no.such:Thing", "collections:NoSuch", "collections.OrderedDict"):
        with pytest.raises(InputError, match=r"config\.callbacks_class"):
            config(callbacks_class=wrong)


def test_types_of_rllibs_own_keys() -> None:
    assert (
        check_types(GRPO.get_default_config(), {"lr": [[0, 1e-3], [100, 0.0]], "num_learners": 2, "seed": None}) == []
    )
    assert check_types(GRPO.get_default_config(), {"evaluation_at_start": "yes"}) != []
    assert check_types(GRPO.get_default_config(), {"num_gpus_per_learner": 0.5, "num_cpus_per_env_runner": 0.25}) == []
    assert check_types(GRPO.get_default_config(), {"num_env_runners": 1.5, "num_gpus_per_learner": "half"}) != []
