"""An experiment: what a YAML file or the command line asks to be run, checked before anything starts."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from rllib_agentic.algorithms.config import AgenticConfig
from rllib_agentic.algorithms.keys import has_search_space, merge_section
from rllib_agentic.algorithms.presets import PRESETS, algorithm_class
from rllib_agentic.algorithms.sections import SECTIONS
from rllib_agentic.components import Settings, parse_settings
from rllib_agentic.errors import InputError, did_you_mean

_MOVED = {
    "local_dir": "storage_path",
    "checkpoint_freq": "checkpoint_config: {checkpoint_frequency: N}",
    "checkpoint_at_end": "checkpoint_config: {checkpoint_at_end: true}",
    "keep_checkpoints_num": "checkpoint_config: {num_to_keep: N}",
}
_RENAMED_METRICS = {
    "episode_reward_mean": "env_runners/episode_return_mean",
    "episode_return_mean": "env_runners/episode_return_mean",
    "success_rate": "env_runners/success_rate or evaluation/success_rate",
    "timesteps_total": "num_env_steps_sampled_lifetime",
}


class CheckpointSettings(Settings):
    """When to save. As Tune's ``CheckpointConfig``; a checkpoint at the end is the default here."""

    checkpoint_frequency: int = Field(default=0, ge=0)
    checkpoint_at_end: bool = True
    num_to_keep: int | None = Field(default=None, ge=1)
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: Literal["max", "min"] = "max"


class ExperimentSettings(Settings):
    """The value under an experiment's name in a YAML file.

    Attributes:
        run: the algorithm preset.
        env: the environment.
        stop: metric to value; the run ends as soon as one is reached.
        pass_criteria: metric to value; the command exits with 1 where one is not reached in the end.
        num_samples: how often to draw from the search spaces.
        checkpoint_config: when to save.
        storage_path: where experiments go; a folder named like the experiment is made in it.
        max_failures: how often a trial that failed is started again from its last checkpoint.
        restore: a checkpoint that the trial begins from, with everything in it; its iterations count on.
        scheduler: a Tune scheduler's name, or ``{type: NAME, ...}`` with its arguments.
        config: the algorithm's configuration.
    """

    run: str
    env: str | None = None
    stop: dict[str, float | int | bool] = Field(default_factory=dict)
    pass_criteria: dict[str, float] = Field(default_factory=dict)
    num_samples: int = Field(default=1, ge=1)
    checkpoint_config: CheckpointSettings = CheckpointSettings()
    storage_path: str = "runs"
    max_failures: int = Field(default=0, ge=-1)
    restore: str | None = None
    scheduler: str | dict[str, Any] | None = None
    config: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A named, checked experiment.

    Attributes:
        name: of the experiment and of its folder.
        settings: as written.
        algorithm: the preset's class.
        config: the resolved config of a run without search spaces; with them, None.
    """

    name: str
    settings: ExperimentSettings
    algorithm: Any
    config: AgenticConfig | None

    @property
    def param_space(self) -> dict[str, Any]:
        """What Tune gets: the configuration as written, with the environment's name."""
        space = copy.deepcopy(self.settings.config)
        space["env"] = self.settings.env
        return space

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The full configuration of a trial that was given ``given``."""
        return self.algorithm.get_default_config().update_from_dict(given).resolved()


def read_experiments(
    entries: Mapping[str, Any], where: str, overrides: Mapping[str, Any] | None = None
) -> list[Experiment]:
    """Check all experiments of a file.

    Args:
        entries: experiment name to specification.
        where: the file, for messages.
        overrides: settings that the command line lays over each of them.

    Raises:
        InputError: every fault of every experiment, a line each.
    """
    if all(key in SECTIONS or not isinstance(value, Mapping) for key, value in entries.items()):
        faults = [
            f"{where}: this looks like a configuration; experiments have the form NAME: {{run, env, stop, config}}"
        ]
        faults += _config_faults(AgenticConfig(), entries)
        raise InputError("\n".join(faults))
    experiments, faults = [], []
    for name, entry in entries.items():
        try:
            experiments.append(_read(str(name), entry, overrides or {}))
        except InputError as error:
            faults += [f"{where}: {name}: {line}" for line in str(error).splitlines()]
    if faults:
        raise InputError("\n".join(faults))
    return experiments


def _read(name: str, entry: Any, overrides: Mapping[str, Any]) -> Experiment:
    if not isinstance(entry, Mapping):
        raise InputError(
            f"expected a mapping with the keys {', '.join(ExperimentSettings.model_fields)}, got {entry!r}"
        )
    moved = [f"{key}: write {_MOVED[key]}" for key in entry if key in _MOVED]
    if moved:
        raise InputError("\n".join(moved))
    merged = merge_section(dict(entry), overrides)
    config = merged.get("config")
    if isinstance(config, Mapping) and "env" in config:
        merged["config"] = {key: value for key, value in config.items() if key != "env"}
        merged.setdefault("env", config["env"])
    settings = parse_settings(ExperimentSettings, merged, "experiment")
    _check_metrics(settings)
    if settings.run not in PRESETS:
        raise InputError(f"run: unknown algorithm {settings.run!r}. {did_you_mean(settings.run, PRESETS)}")
    algorithm = algorithm_class(settings.run)
    config_object = algorithm.get_default_config()
    faults = _config_faults(config_object, {**settings.config, "env": settings.env})
    if faults:
        raise InputError("\n".join(faults))
    if has_search_space(settings.config):
        return Experiment(name, settings, algorithm, None)
    config_object.validate()
    return Experiment(name, settings, algorithm, config_object)


def _config_faults(config: AgenticConfig, given: Mapping[str, Any]) -> list[str]:
    try:
        config.update_from_dict(given)
    except InputError as error:
        return str(error).splitlines()
    return []


def _check_metrics(settings: ExperimentSettings) -> None:
    faults = [
        f"{key}.{metric}: no such metric; use {_RENAMED_METRICS[metric]}"
        for key in ("stop", "pass_criteria")
        for metric in getattr(settings, key)
        if metric in _RENAMED_METRICS
    ]
    if faults:
        raise InputError("\n".join(faults))
