"""``rllib evaluate`` without a checkpoint: an environment's expert, chance, or a model as it comes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rllib_agentic.cli.train_options import json_mapping
from rllib_agentic.errors import InputError

WITHOUT_MODEL = ("expert", "random")
MODELS = ("tiny", "smollm2")
POLICIES = (*WITHOUT_MODEL, *MODELS)
_LIMITS = {"max_tokens_per_turn": 4096, "max_context_tokens": 1 << 18, "max_concurrent_episodes": 16}
"""Of what an expert or chance says: nothing is cut but by ``rollout.max_turns``."""


def is_policy(name: str) -> bool:
    """Whether an argument names a policy, and no checkpoint's folder of that name."""
    return name in POLICIES and not Path(name).expanduser().exists()


def play_policy(given: argparse.Namespace, overrides: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Play held-out tasks with a policy that was not trained.

    Tasks are those that a checkpoint of the environment would be evaluated on: same choice, same seeds.

    Args:
        given: the options of ``rllib evaluate``.
        overrides: configuration, as for a checkpoint.

    Returns:
        the metrics, and the trajectories.

    Raises:
        InputError: no environment was named, or the environment has no such policy.
    """
    if given.env is None:
        raise InputError(f"rllib evaluate {given.checkpoint}: name the environment with --env, such as --env maze")
    if given.algo is not None:
        raise InputError(f"--algo: {given.checkpoint!r} was trained by none; leave the option out")
    from rllib_agentic.algorithms.presets import algorithm_class
    from rllib_agentic.envs.registry import env_factory

    config = json_mapping("--config", given.config)
    args = config.get("env_config", {}).get("args", {})
    make = env_factory(given.env, **args)
    probe = make()
    schema = probe.schema()
    probe.close()
    base = (
        algorithm_class("GRPO")
        .get_default_config()
        .update_from_dict(
            {
                "env": given.env,
                "env_config": {"backend": "local"},
                "rollout": {"max_turns": schema.max_turns},
                "store": {"enabled": False},
                "evaluation_config": {"env_config": {"split": "test"}, "rollout": {"temperature": 1.0}},
            }
        )
    )
    if given.checkpoint in MODELS:
        config = base.update_from_dict({"model": {"preset": given.checkpoint}} | overrides)
        return _play_model(config, None if given.episodes is not None else given.steps)
    if given.steps is not None:
        raise InputError(f"--steps: {given.checkpoint!r} plays whole tasks; give --episodes")
    return _play_texts(given.checkpoint, base.update_from_dict(overrides), make, schema)


def _play_model(config: Any, num_turns: int | None) -> tuple[dict[str, Any], list[Any]]:
    from rllib_agentic.cli.cluster import ClusterOptions, connected

    with connected(ClusterOptions()):
        algo = config.build_algo()
        try:
            metrics, trajectories = algo.evaluate_episodes(num_turns=num_turns)
        finally:
            algo.stop()
    return metrics, trajectories


def _play_texts(policy: str, config: Any, make: Callable[[], Any], schema: Any) -> tuple[dict[str, Any], list[Any]]:
    from rllib_agentic.algorithms.held_out import held_out_tasks, summarise
    from rllib_agentic.context import CONTEXTS
    from rllib_agentic.engines.legal_tokens import ActionTries
    from rllib_agentic.envs.advice import advised, drawing
    from rllib_agentic.envs.local import LocalClient
    from rllib_agentic.offline.aside import run_aside
    from rllib_agentic.offline.collect import Spoken
    from rllib_agentic.rendering import renderer_for
    from rllib_agentic.rl_module.model_loading import load_tokenizer
    from rllib_agentic.rl_module.model_settings import ModelSettings
    from rllib_agentic.rollout.group import plan_group
    from rllib_agentic.rollout.spoken import Speech

    sections = config.get_evaluation_config_object().sections()
    split = sections.env_config.split
    if split not in schema.splits:
        raise InputError(f"--split: {schema.name} has no split {split!r}; there are {', '.join(schema.splits)}")
    tokenizer = load_tokenizer(ModelSettings(preset="tiny"))
    renderer = renderer_for(tokenizer)
    settings = sections.rollout.model_copy(update=_LIMITS)
    context = CONTEXTS.parse({"type": "append_only"}, "context")
    speech = Speech(renderer, ActionTries(tokenizer, renderer.end_of_turn_id), context.make, settings).to(schema)
    plans = [
        plan
        for task in held_out_tasks(schema, split, config.evaluation_duration, sections.seed)
        for plan in plan_group(
            task,
            group_id=f"eval:{task.split}:{task.index}",
            size=config.evaluation_samples_per_task,
            run_seed=sections.seed,
            iteration=0,
            max_turns=settings.max_turns,
        )
    ]

    async def play() -> list[Any]:
        client = LocalClient((advised if policy == "expert" else drawing)(make), sections.env_config.call_timeout_s)
        try:
            return await Spoken(speech, expert=policy == "expert")(plans, client)
        finally:
            await client.aclose()

    trajectories = run_aside(play())
    return summarise(trajectories) | {"split": split, "splits_hash": schema.splits_hash}, trajectories
