"""What an experiment would start: for ``--dry-run``, and the checks before a start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rllib_agentic.algorithms.checkpoints import find_checkpoint
from rllib_agentic.cli.experiment import Experiment
from rllib_agentic.cli.memory import estimate_memory
from rllib_agentic.cli.places import searched
from rllib_agentic.envs.client import check_env_config
from rllib_agentic.errors import InputError
from rllib_agentic.tracking.params import plain


def check_model(experiment: Experiment) -> None:
    """Find out before anything starts whether the model, and the checkpoint to begin from, are there.

    Raises:
        InputError: one is not, or the model does not go with the limits and the chat format that are set.
    """
    start = experiment.settings.restore
    if start is not None and experiment.follows is None:
        if not Path(start).expanduser().exists():
            raise InputError(
                f"restore: {start!r} is no experiment further up in the same file, and no folder with a checkpoint; "
                "run the file that makes it first, and give its folder here (or as --restore)"
            )
        find_checkpoint(start)
    for config in (experiment.config, experiment.config.get_evaluation_config_object()):
        config.sections().check_model()


def check_environment(experiment: Experiment) -> None:
    """Find out before anything starts whether the environment can work.

    Raises:
        InputError: it cannot be made, nothing answers at its URL, or there is no such split.
    """
    config = experiment.config
    sections = config.sections()
    for env, settings in sections.env_settings(config.env).items():
        check_env_config(env, settings)
    evaluation = config.get_evaluation_config_object().sections()
    if evaluation.env_config.split != sections.env_config.split:
        check_env_config(config.env, evaluation.env_config)


def _text(domain: Any) -> Any:
    return domain if isinstance(domain, dict) else f"{type(domain).__name__} {domain.domain_str}"


def describe(experiment: Experiment) -> dict[str, Any]:
    """The resolved configuration, what it would start, and an estimate of memory and GPUs.

    Raises:
        InputError: as :func:`check_environment`.
    """
    check_environment(experiment)
    settings = experiment.settings
    entry: dict[str, Any] = {
        "run": settings.run,
        "env": settings.env,
        "stop": settings.stop,
        "pass_criteria": settings.pass_criteria,
        "checkpoint_config": settings.checkpoint_config.model_dump(),
        "storage_path": settings.storage_path,
        "num_samples": settings.num_samples,
    }
    if experiment.is_sweep:
        entry["trials"] = experiment.num_trials
        entry["search_space"] = {".".join(map(str, path)): _text(domain) for path, domain in searched(experiment.space)}
    config = experiment.config
    sections = config.sections()
    serve = sections.env_config.backend == "serve" and sections.env_config.app is None
    entry["starts"] = {
        "trial_process": 1,
        "env_runners": config.num_env_runners or "1, in the trial's process",
        "learners": config.num_learners or "1, in the trial's process",
        "environment": (
            f"{sections.env_config.num_replicas} Serve replica(s) of {config.env}"
            if serve
            else f"{config.env} by backend {sections.env_config.backend}"
        ),
        "episodes_per_iteration": sections.rollout.group_size * sections.rollout.groups_per_iteration,
        "gpus": config.num_env_runners * config.num_gpus_per_env_runner
        + config.num_learners * config.num_gpus_per_learner,
    }
    entry["memory"] = estimate_memory(config)
    entry["config"] = config.resolved()
    return plain(entry)
