"""``rllib evaluate``: play held-out tasks with a checkpoint."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rllib_agentic.algorithms.presets import run_name
from rllib_agentic.cli.train_options import json_mapping
from rllib_agentic.errors import InputError


def add_command(commands: Any) -> None:
    """Register ``evaluate``."""
    parser = commands.add_parser("evaluate", help="play held-out tasks with a checkpoint", description=__doc__)
    parser.add_argument("checkpoint", help="a checkpoint's folder, or an experiment's (its newest checkpoint)")
    parser.add_argument("--episodes", type=int, help="held-out tasks to play (default: evaluation_duration)")
    parser.add_argument("--samples", type=int, help="episodes a task")
    parser.add_argument("--split", help="the split to take them from (default: that of evaluation_config)")
    parser.add_argument("--temperature", type=float, help="sampling temperature; 0 is greedy")
    parser.add_argument("--algo", help="check that the checkpoint is of this algorithm")
    parser.add_argument("--env", help="check that the checkpoint is of this environment")
    parser.add_argument("--config", metavar="JSON", help="configuration laid over the stored one")
    parser.add_argument("--out", help="also write the result to this JSON file")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.set_defaults(command=evaluate)


def evaluate(given: argparse.Namespace) -> int:
    """Load the checkpoint, play, print."""
    from rllib_agentic.algorithms.checkpoints import find_checkpoint, load_algorithm
    from rllib_agentic.cli.cluster import ClusterOptions, connected
    from rllib_agentic.cli.console import print_json, print_rows
    from rllib_agentic.tracking.params import plain

    for name in ("episodes", "samples"):
        value = getattr(given, name)
        if value is not None and value < 1:
            raise InputError(f"--{name}: expected at least 1, got {value}")
    folder = find_checkpoint(given.checkpoint)
    with connected(ClusterOptions()):
        algo = load_algorithm(folder, _overrides(given))
        try:
            _check(given, algo)
            result = plain(algo.evaluate())
            result |= {"checkpoint": str(folder), "run": run_name(type(algo)), "env": algo.config.env}
            result["training_iteration"] = algo.iteration
        finally:
            algo.stop()
    if given.out is not None:
        Path(given.out).write_text(json.dumps(result, indent=1))
    if given.json:
        print_json(result)
    else:
        print_rows([{"metric": key, "value": value} for key, value in result.items()], as_json=False)
    return 0


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
