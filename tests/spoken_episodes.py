"""Episodes of experts and of chance, in the tokens of some model, without a model."""

from __future__ import annotations

from functools import cache
from typing import Any

from rllib_agentic.context import AppendOnly
from rllib_agentic.engines.legal_tokens import ActionTries
from rllib_agentic.envs.advice import advised, drawing
from rllib_agentic.envs.registry import env_factory
from rllib_agentic.offline.collect import Spoken, collect
from rllib_agentic.rendering import renderer_for
from rllib_agentic.rl_module.model_loading import ModelSettings, load_tokenizer
from rllib_agentic.rollout.limits import RolloutSettings
from rllib_agentic.rollout.spoken import Speech
from rllib_agentic.trajectory import Trajectory


@cache
def tiny() -> Any:
    return load_tokenizer(ModelSettings(preset="tiny"))


def speech_of(tokenizer: Any, context: Any = None, **limits: Any) -> Speech:
    renderer = renderer_for(tokenizer)
    settings = RolloutSettings(**{"max_tokens_per_turn": 200, "max_context_tokens": 1 << 16, **limits})
    return Speech(renderer, ActionTries(tokenizer, renderer.end_of_turn_id), (context or AppendOnly()).make, settings)


def collected(
    env: str, speech: Speech, *, expert: bool = True, episodes: int = 6, group_size: int = 1, seed: int = 0, **args: Any
) -> list[Trajectory]:
    make = env_factory(env, **args)
    schema = make().schema()
    found: list[Trajectory] = []
    collect(
        Spoken(speech, expert=expert), (advised if expert else drawing)(make), schema, found.extend,
        policy="expert" if expert else "random", split="train", episodes=episodes, group_size=group_size,
        max_turns=schema.max_turns, seed=seed,
    )  # fmt: skip
    return found
