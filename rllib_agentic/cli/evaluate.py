"""``rllib evaluate``: play held-out tasks with a checkpoint, an expert, chance, or a model that was not trained."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rllib_agentic.algorithms.presets import run_name
from rllib_agentic.cli.evaluate_policy import is_policy, play_policy
from rllib_agentic.cli.train_options import json_mapping
from rllib_agentic.errors import InputError, TooManyFailuresError


def add_command(commands: Any) -> None:
    """Register ``evaluate``."""
    parser = commands.add_parser(
        "evaluate", help="play held-out tasks with a checkpoint or a policy", description=__doc__
    )
    parser.add_argument(
        "checkpoint",
        help="a checkpoint's folder, or an experiment's (its newest checkpoint); or, with --env: expert (the "
        "environment's own), random (its admissible actions, or what it draws), tiny or smollm2 (untrained)",
    )
    parser.add_argument("--episodes", type=int, help="held-out tasks to play (default: evaluation_duration)")
    parser.add_argument("--steps", type=int, help="play tasks until so many turns were taken; --episodes overrides it")
    parser.add_argument("--samples", type=int, help="episodes a task")
    parser.add_argument("--split", help="the split to take them from (default: that of evaluation_config)")
    parser.add_argument("--temperature", type=float, help="sampling temperature; 0 is greedy")
    parser.add_argument("--algo", help="check that the checkpoint is of this algorithm")
    parser.add_argument("--env", help="check that the checkpoint is of this environment; or what a policy is to play")
    parser.add_argument("--config", metavar="JSON", help="configuration laid over the stored one, or over the defaults")
    parser.add_argument("--out", help="also write the result to this JSON file")
    parser.add_argument(
        "--save-info",
        action="store_true",
        help="with --out: the episodes too, each turn with its text, the environment's answer, rewards and metrics",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.set_defaults(command=evaluate)


def evaluate(given: argparse.Namespace) -> int:
    """Load the checkpoint or make the policy, play, print."""
    from rllib_agentic.cli.console import print_json, print_rows
    from rllib_agentic.store import as_dict
    from rllib_agentic.tracking.params import plain

    for name in ("episodes", "steps", "samples"):
        value = getattr(given, name)
        if value is not None and value < 1:
            raise InputError(f"--{name}: expected at least 1, got {value}")
    if given.save_info and given.out is None:
        raise InputError("--save-info: give --out FILE too, which is where the episodes are written")
    if given.out is not None and not Path(given.out).expanduser().absolute().parent.is_dir():
        raise InputError(f"--out: {given.out!r} lies in no folder that exists")
    if is_policy(given.checkpoint):
        metrics, trajectories = play_policy(given, _overrides(given))
        result = plain(metrics) | {"policy": given.checkpoint, "env": given.env}
    else:
        result, trajectories = _play_checkpoint(given)
    if given.out is not None:
        episodes = {"episodes": [as_dict(t) for t in trajectories]} if given.save_info else {}
        text = json.dumps(result | episodes, indent=1, ensure_ascii=False, default=plain)
        Path(given.out).expanduser().write_text(text, encoding="utf-8")
    if not result["num_valid_episodes"]:
        kinds = ", ".join(sorted({str(t.invalid) for t in trajectories})) or "no task was played"
        raise TooManyFailuresError(f"none of the {len(trajectories)} episodes is valid: {kinds}")
    if given.json:
        print_json(result)
    else:
        print_rows([{"metric": key, "value": value} for key, value in result.items()], as_json=False)
    return 0


def _play_checkpoint(given: argparse.Namespace) -> tuple[dict[str, Any], list[Any]]:
    from rllib_agentic.algorithms.checkpoints import find_checkpoint, load_algorithm
    from rllib_agentic.cli.cluster import ClusterOptions, connected
    from rllib_agentic.tracking.params import plain

    folder = find_checkpoint(given.checkpoint)
    with connected(ClusterOptions()):
        algo = load_algorithm(folder, _overrides(given))
        try:
            _check(given, algo)
            steps = None if given.episodes is not None else given.steps
            metrics, trajectories = algo.evaluate_episodes(num_turns=steps)
            result = plain(metrics)
            result |= {"checkpoint": str(folder), "run": run_name(type(algo)), "env": algo.config.env}
            result["training_iteration"] = algo.iteration
        finally:
            algo.stop()
    return result, trajectories


def _overrides(given: argparse.Namespace) -> dict[str, Any]:
    overrides: dict[str, Any] = json_mapping("--config", given.config)
    evaluation: dict[str, Any] = {}
    if given.split is not None:
        evaluation["env_config"] = {"split": given.split}
    if given.temperature is not None:
        evaluation["rollout"] = {"temperature": given.temperature}
    if evaluation:
        overrides["evaluation_config"] = evaluation
    if given.episodes is not None:
        overrides["evaluation_duration"] = given.episodes
    if given.samples is not None:
        overrides["evaluation_samples_per_task"] = given.samples
    return overrides | {"num_env_runners": 0, "num_learners": 0}


def _check(given: argparse.Namespace, algo: Any) -> None:
    for option, got in (("algo", run_name(type(algo))), ("env", algo.config.env)):
        wanted = getattr(given, option)
        if wanted is not None and wanted != got:
            raise InputError(f"--{option}: {wanted!r} was asked for, but the checkpoint is of {got!r}")
