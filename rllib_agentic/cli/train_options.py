"""The options of ``rllib train``: those of the command that Ray once had, and a few more."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rllib_agentic.errors import InputError


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """The options that ``train`` and ``train file`` share."""
    run = parser.add_argument_group("experiment")
    run.add_argument("-s", "--stop", metavar="JSON", help="stop criteria, such as '{\"training_iteration\": 3}'")
    run.add_argument("-e", "--env", help="environment; see `rllib envs list`")
    run.add_argument("-n", "--experiment-name", help="name of the experiment and of its folder")
    run.add_argument("--seed", type=int, help="seed of the run")
    run.add_argument("--num-samples", type=int, help="draws from the search spaces")
    run.add_argument("--storage-path", help="folder of all experiments (default: runs)")
    run.add_argument("--scheduler", help="Tune scheduler, such as ASHAScheduler")
    run.add_argument("--scheduler-config", metavar="JSON", help="arguments of the scheduler")
    run.add_argument("--resume", action="store_true", help="go on with this experiment; an error where there is none")
    run.add_argument("--restart", action="store_true", help="set an earlier experiment of this name aside, begin anew")
    run.add_argument("--framework", default="torch", help="torch is the only one")

    save = parser.add_argument_group("checkpoints")
    save.add_argument("--checkpoint-freq", type=int, help="save every so many iterations; 0 saves at the end alone")
    save.add_argument("--checkpoint-at-end", action=argparse.BooleanOptionalAction, help="save at the end (default)")
    save.add_argument("--keep-checkpoints-num", type=int, help="keep so many checkpoints")
    save.add_argument("--checkpoint-score-attr", help="keep the best by this metric; prefix min- for the lowest")

    ray = parser.add_argument_group("ray")
    ray.add_argument("--ray-address", help="address of a running cluster, or auto")
    ray.add_argument("--ray-num-cpus", type=int, help="CPUs of a Ray that is started here (of each node)")
    ray.add_argument("--ray-num-gpus", type=int, help="GPUs of a Ray that is started here (of each node)")
    ray.add_argument("--ray-num-nodes", type=int, help="simulate a cluster of so many nodes on this machine")
    ray.add_argument("--ray-object-store-memory", type=int, help="bytes of the object store (of each node)")

    output = parser.add_argument_group("output")
    output.add_argument("--dry-run", action="store_true", help="show what would run, memory and GPUs; start nothing")
    output.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    output.add_argument("-v", "--log-info", action="store_true", help="log more")
    output.add_argument("-vv", "--log-debug", action="store_true", help="log everything")


def overrides_of(given: argparse.Namespace) -> dict[str, Any]:
    """What the options lay over the specification of an experiment.

    Raises:
        InputError: an option that should be JSON is not.
    """
    score = given.checkpoint_score_attr
    saving = {
        "checkpoint_frequency": given.checkpoint_freq,
        "checkpoint_at_end": given.checkpoint_at_end,
        "num_to_keep": given.keep_checkpoints_num,
        "checkpoint_score_attribute": score.removeprefix("min-") if score else None,
        "checkpoint_score_order": "min" if score and score.startswith("min-") else None,
    }
    scheduler: Any = given.scheduler
    if given.scheduler_config is not None:
        if scheduler is None:
            raise InputError("--scheduler-config: give --scheduler NAME too")
        scheduler = {"type": scheduler, **json_mapping("--scheduler-config", given.scheduler_config)}
    overrides = {
        "stop": json_mapping("--stop", given.stop) or None,
        "env": given.env,
        "num_samples": given.num_samples,
        "storage_path": given.storage_path,
        "scheduler": scheduler,
        "checkpoint_config": {key: value for key, value in saving.items() if value is not None} or None,
        "config": None if given.seed is None else {"seed": given.seed},
    }
    return {key: value for key, value in overrides.items() if value is not None}


def json_mapping(option: str, text: str | None) -> dict[str, Any]:
    """The mapping that an option gives as JSON; ``{}`` where it was not given.

    Raises:
        InputError: it is no JSON, or no mapping.
    """
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{option}: this is no JSON ({error}): {text!r}") from error
    if not isinstance(value, dict):
        raise InputError(f"{option}: expected a JSON object such as '{{\"training_iteration\": 3}}', got {text!r}")
    return value
