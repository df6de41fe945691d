"""``rllib train``: from a file, or from the command line alone."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rllib_agentic.cli.train_options import add_training_options, json_mapping, overrides_of
from rllib_agentic.errors import InputError


def add_command(commands: Any) -> None:
    """Register ``train`` and ``train file``."""
    train = commands.add_parser("train", help="train an agent", description=__doc__)
    train.add_argument("-a", "--algo", "-r", "--run", help="algorithm, such as GRPO")
    train.add_argument("-c", "--config", metavar="JSON", help="the algorithm's configuration")
    train.add_argument(
        "--restore", metavar="CHECKPOINT", help="begin from this checkpoint, in an experiment of its own"
    )
    add_training_options(train)
    train.set_defaults(command=_train_from_options)
    file = train.add_subparsers(metavar="file").add_parser("file", help="train what a .yaml or .py file describes")
    file.add_argument("config_file", help="a .yaml, .yml or .py file, or its URL")
    add_training_options(file)
    file.set_defaults(command=_train_from_file)


def _train_from_file(given: argparse.Namespace) -> int:
    from rllib_agentic.cli.yaml_file import read_experiment_file

    entries = read_experiment_file(given.config_file)
    if given.experiment_name is not None:
        if len(entries) > 1:
            names = ", ".join(map(str, entries))
            raise InputError(f"--experiment-name: {given.config_file} holds several experiments: {names}")
        entries = {given.experiment_name: next(iter(entries.values()))}
    return _train(entries, given.config_file, given)


def _train_from_options(given: argparse.Namespace) -> int:
    if given.algo is None or given.env is None:
        raise InputError("rllib train: give --algo NAME and --env NAME, or `rllib train file FILE`; see --help")
    entry: dict[str, Any] = {"run": given.algo, "config": json_mapping("--config", given.config)}
    if given.restore is not None:
        entry["restore"] = str(Path(given.restore).expanduser().resolve())
    name = given.experiment_name or f"{given.algo.lower()}-{given.env}"
    return _train({name: entry}, "command line", given)


def _train(entries: dict[str, Any], where: str, given: argparse.Namespace) -> int:
    from rllib_agentic.cli.cluster import ClusterOptions
    from rllib_agentic.cli.experiment import read_experiments
    from rllib_agentic.cli.train_experiments import TrainOptions, dry_run, train_experiments

    if given.framework != "torch":
        raise InputError(f"--framework: torch is the only one, got {given.framework!r}")
    experiments = read_experiments(entries, where, overrides_of(given))
    if given.dry_run:
        return dry_run(experiments, as_json=given.json)
    verbosity = 2 if given.log_debug else 1 if given.log_info else 0
    return train_experiments(
        experiments,
        TrainOptions(as_json=given.json, must_resume=given.resume, restart=given.restart, verbosity=verbosity),
        ClusterOptions(
            address=given.ray_address,
            num_cpus=given.ray_num_cpus,
            num_gpus=given.ray_num_gpus,
            num_nodes=given.ray_num_nodes,
            object_store_memory=given.ray_object_store_memory,
        ),
    )
