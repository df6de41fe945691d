"""RLlib's keys that nothing reads here: set to anything but their default they would be ignored in silence."""

from __future__ import annotations

from functools import cache
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

_BATCH = "an iteration has rollout.groups_per_iteration times rollout.group_size trajectories"
_ROUND = "an iteration is one round of sampling and learning"
_WHOLE = "episodes are always sampled whole"
_NO_GYM = "environments are sessions of a service, not gymnasium objects"
_NO_CONNECTORS = "tokens go from engine to learner as they are; there are no connectors"
_HELD_OUT = "held-out tasks are played by the training runners, between iterations"
_DATA = "the section `offline` reads stored trajectories, the section `store` writes them"
_ONE = "there is one module, the language model"

DEAD_KEYS: dict[str, str] = {
    "train_batch_size": _BATCH,
    "train_batch_size_per_learner": _BATCH,
    "min_time_s_per_iteration": _ROUND,
    "min_sample_timesteps_per_iteration": _ROUND,
    "min_train_timesteps_per_iteration": _ROUND,
    "rollout_fragment_length": _WHOLE,
    "batch_mode": _WHOLE,
    "sample_timeout_s": "an episode that takes too long ends by rollout.episode_timeout_s",
    "evaluation_sample_timeout_s": "an episode that takes too long ends by rollout.episode_timeout_s",
    "num_envs_per_env_runner": "rollout.max_concurrent_episodes bounds what a runner plays at once",
    "gamma": "discounts belong to the estimator: advantages.gamma",
    "explore": "rollout.temperature says how episodes are sampled",
    "exploration_config": "rollout.temperature says how episodes are sampled",
    "grad_clip_by": "the global norm is clipped",
    "torch_skip_nan_gradients": "a step whose gradient is not finite is always skipped, and counted",
    "shuffle_batch_per_epoch": "trajectories are shuffled before every pass",
    "torch_compile_learner": "the learner does not compile the model",
    "torch_compile_worker": "the engine does not compile the model",
    "learner_config_dict": "the section `learner` configures the learner",
    "num_aggregator_actors_per_learner": "the driver gathers trajectories",
    "num_gpus": "write num_gpus_per_learner or num_gpus_per_env_runner",
    "evaluation_num_env_runners": _HELD_OUT,
    "evaluation_parallel_to_training": _HELD_OUT,
    "evaluation_duration_unit": "evaluation_duration counts held-out tasks",
    "custom_evaluation_function": "listen to on_evaluate_end, or override Agentic.evaluate",
    "observation_filter": _NO_GYM,
    "normalize_actions": _NO_GYM,
    "clip_actions": _NO_GYM,
    "clip_rewards": "the section `rewards` changes rewards",
    "render_env": _NO_GYM,
    "callbacks_on_environment_created": _NO_GYM,
    "env_to_module_connector": _NO_CONNECTORS,
    "module_to_env_connector": _NO_CONNECTORS,
    "learner_connector": _NO_CONNECTORS,
    "input_": _DATA,
    "output": _DATA,
    "policies": _ONE,
    "algorithm_config_overrides_per_module": _ONE,
    "metrics_num_episodes_for_smoothing": "every result is about its own iteration",
    "keep_per_episode_custom_metrics": "every trajectory is in the store",
}
"""Key to what holds instead."""


def dead_key_faults(config: AlgorithmConfig) -> list[str]:
    """A sentence for every dead key that was set to something else than its default."""
    faults = []
    for key, instead in DEAD_KEYS.items():
        value = _value(config, key)
        default = _value(_defaults(), key)
        if not (value is default or _same(value, default)):
            faults.append(f"config.{key}: has no effect here ({value!r}): {instead}")
    return faults


@cache
def _defaults() -> AlgorithmConfig:
    return AlgorithmConfig()


def _value(config: AlgorithmConfig, key: str) -> Any:
    return vars(config).get(key, vars(config).get(f"_{key}"))


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, dict) and isinstance(default, dict):
        return value.keys() == default.keys()
    return isinstance(value, bool) == isinstance(default, bool) and bool(value == default)
