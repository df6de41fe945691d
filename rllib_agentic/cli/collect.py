"""``rllib envs collect``: trajectories of an expert, of chance or of a model, into a store."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from rllib_agentic.cli.train_options import json_mapping
from rllib_agentic.errors import InputError

_LIMITS = {"max_tokens_per_turn": 2048, "max_context_tokens": 1 << 17, "max_concurrent_episodes": 16}
"""Wide ones: what is collected is cut by the limits of the run that learns from it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``envs collect``, beside name and arguments of the environment."""
    parser.add_argument(
        "--policy",
        required=True,
        help="expert (the environment's own), random (over its admissible actions), or a model: tiny, smollm2, a "
        "Hugging Face folder or hub id, a checkpoint's or experiment's folder",
    )
    parser.add_argument("--episodes", type=int, required=True, help="how many")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="where the store goes; must not hold one")
    parser.add_argument("--split", default="train", help="whose tasks (default: train)")
    parser.add_argument("--group-size", type=int, default=1, help="episodes a task (default: 1)")
    parser.add_argument("--max-turns", type=int, help="interaction budget (default: the environment's)")
    parser.add_argument(
        "--model", default="tiny", help="whose tokens an expert's or a random policy's words become (default: tiny)"
    )
    parser.add_argument("--rollout", metavar="JSON", help="limits and sampling, as in the section rollout")
    parser.add_argument("--context", default='{"type": "append_only"}', metavar="JSON", help="as in the section")
    parser.add_argument("--seed", type=int, default=0, help="of tasks and of chance")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def collect_trajectories(given: argparse.Namespace) -> int:
    """Play, store, and print what came of it."""
    from rllib_agentic.cli.console import print_json, print_rows
    from rllib_agentic.components import parse_settings
    from rllib_agentic.context import CONTEXTS
    from rllib_agentic.envs.advice import advised, drawing
    from rllib_agentic.envs.registry import env_factory
    from rllib_agentic.offline.collect import collect, summary
    from rllib_agentic.rollout.limits import RolloutSettings
    from rllib_agentic.store import TrajectoryWriter, find_stores

    output = Path(given.output).expanduser()
    if output.exists() and (not output.is_dir() or find_stores(output)):
        raise InputError(f"--output: {str(output)!r} holds trajectories already, or is no folder; name another")
    make = env_factory(given.name, **json_mapping("--args", given.args))
    probe = make()
    schema = probe.schema()
    probe.close()
    limits = {**_LIMITS, "max_turns": given.max_turns or schema.max_turns, **json_mapping("--rollout", given.rollout)}
    settings = parse_settings(RolloutSettings, limits, "--rollout")
    context = CONTEXTS.parse(json_mapping("--context", given.context), "--context")
    player = _player(given, settings, context, schema)
    parts: list[list[Any]] = []
    writer = TrajectoryWriter(output)

    def keep(part: list[Any]) -> None:
        writer.write(len(parts), part)
        parts.append(part)
        print(f"{sum(map(len, parts))} of {given.episodes} episodes", file=sys.stderr)

    collect(
        player,
        {"expert": advised, "random": drawing}[given.policy](make) if given.policy in ("expert", "random") else make,
        schema,
        keep,
        policy=given.policy if given.policy in ("expert", "random") else Path(given.policy).name,
        split=given.split,
        episodes=given.episodes,
        group_size=given.group_size,
        max_turns=settings.max_turns,
        seed=given.seed,
    )
    row = {
        "env": given.name,
        "split": given.split,
        "policy": given.policy,
        **summary([t for part in parts for t in part]),
    }
    row["folder"] = str(output)
    if given.json:
        print_json(row)
    else:
        print_rows([{"what": key, "value": value} for key, value in row.items()], as_json=False)
    return 0


def _player(given: argparse.Namespace, settings: Any, context: Any, schema: Any) -> Any:
    from rllib_agentic.engines.legal_tokens import ActionTries
    from rllib_agentic.offline.collect import Sampled, Spoken
    from rllib_agentic.rendering import renderer_for
    from rllib_agentic.rl_module.model_loading import load_stop_ids, load_tokenizer
    from rllib_agentic.rollout.episode import Rollout
    from rllib_agentic.rollout.spoken import Speech

    if given.policy in ("expert", "random"):
        model = _model_settings(given.model, "--model")
        tokenizer = load_tokenizer(model)
        renderer = renderer_for(tokenizer, stop_ids=load_stop_ids(model))
        tries = ActionTries(tokenizer, renderer.end_of_turn_id)
        speech = Speech(renderer, tries, context.make, settings).to(schema)
        return Spoken(speech, expert=given.policy == "expert")

    from rllib_agentic.engines.hf import HFEngine

    model, tokenizer, stop_ids = _load(given.policy)
    renderer = renderer_for(tokenizer, stop_ids=stop_ids)
    tries = ActionTries(tokenizer, renderer.end_of_turn_id)
    engine = HFEngine(model, tokenizer)
    return Sampled(
        lambda client: Rollout(
            engine,
            renderer,
            {schema.name: client},
            context.make,
            tries.trie,
            settings,
            tools={schema.name: tuple(dict(tool) for tool in schema.shown_tools)},
            stop_strings={schema.name: schema.stop_strings},
        )
    )


def _load(name: str) -> tuple[Any, Any, tuple[int, ...]]:
    from rllib_agentic.algorithms.checkpoints import find_checkpoint
    from rllib_agentic.rl_module.export import restored_module
    from rllib_agentic.rl_module.model_loading import load_model, load_stop_ids, load_tokenizer

    if Path(name).expanduser().is_dir() and not Path(name, "config.json").expanduser().is_file():
        module = restored_module(find_checkpoint(name))
        ends = module.model.generation_config.eos_token_id
        return module.model.eval(), module.tokenizer, (ends,) if isinstance(ends, int) else tuple(ends or ())
    settings = _model_settings(name, "--policy")
    return load_model(settings, seed=0), load_tokenizer(settings), load_stop_ids(settings)


def _model_settings(name: str, option: str) -> Any:
    from rllib_agentic.components import parse_settings
    from rllib_agentic.rl_module.model_settings import ModelSettings

    key = "preset" if name in ("tiny", "smollm2") else "path"
    return parse_settings(ModelSettings, {key: name}, option)
