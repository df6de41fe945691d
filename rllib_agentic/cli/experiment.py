"""An experiment: what a YAML file or the command line asks to be run, checked before anything starts."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field

from rllib_agentic.algorithms.config import AgenticConfig
from rllib_agentic.algorithms.keys import merge_section
from rllib_agentic.algorithms.presets import PRESETS, algorithm_class
from rllib_agentic.algorithms.sections import SECTIONS
from rllib_agentic.cli.places import Place, searched, with_value
from rllib_agentic.cli.schedulers import make_scheduler, mutations
from rllib_agentic.cli.search_space import count_trials, examples, read_space
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
        num_samples: how often to draw from the search spaces; a grid is gone through each time.
        metric: what the scheduler goes by, and what the best trial of a sweep is best in; ``evaluation/success_rate``
            where the run evaluates, else ``env_runners/success_rate``.
        mode: whether the metric is to be large (``max``) or small (``min``).
        max_concurrent_trials: at most so many at once; None for as many as there is room for.
        checkpoint_config: when to save.
        storage_path: where experiments go; a folder named like the experiment is made in it.
        max_failures: how often a trial that failed is started again from its last checkpoint.
        restore: a checkpoint that the trial begins from, with everything in it; its iterations count on. Or the name of
            an experiment further up in the same file, from whose end this one goes on.
        scheduler: a Tune scheduler's name, or ``{type: NAME, ...}`` with its arguments.
        config: the algorithm's configuration. Search spaces in it, at any depth, are written ``{grid_search: [...]}``
            or as a call such as ``tune.loguniform(1.0e-5, 1.0e-3)``.
    """

    run: str
    env: str | None = None
    stop: dict[str, float | int | bool] = Field(default_factory=dict)
    pass_criteria: dict[str, float] = Field(default_factory=dict)
    num_samples: int = Field(default=1, ge=1)
    metric: str | None = None
    mode: Literal["max", "min"] = "max"
    max_concurrent_trials: int | None = Field(default=None, ge=1)
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
        space: the configuration as written, with Tune's domains where it has search spaces, and where a population
            changes what the configuration does not set.
        config: the config of the run; of a sweep, that of one of its trials.
        follows: the experiment of the same file from whose end this one goes on.
    """

    name: str
    settings: ExperimentSettings
    algorithm: Any
    space: dict[str, Any]
    config: AgenticConfig
    follows: Experiment | None = None

    @property
    def is_sweep(self) -> bool:
        """Whether it has more than one trial."""
        return self.num_trials > 1

    @property
    def num_trials(self) -> int:
        """How many trials it has."""
        return count_trials(self.space, self.settings.num_samples)

    @property
    def metric(self) -> str:
        """What trials are compared by."""
        held_out = self.config.evaluation_interval or self.config.evaluation_at_start
        return self.settings.metric or f"{'evaluation' if held_out else 'env_runners'}/success_rate"

    @property
    def places(self) -> list[Place]:
        """Where trials differ: what is searched, and what a population changes."""
        found = [place for place, _ in searched(self.space)]
        return [*found, *(place for place in mutations(self.settings.scheduler) if place not in found)]

    @property
    def param_space(self) -> dict[str, Any]:
        """What Tune gets: the configuration with its search spaces, and the environment's name."""
        return copy.deepcopy(self.space) | {"env": self.settings.env}

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
    experiments: list[Experiment] = []
    faults = []
    for name, entry in entries.items():
        try:
            read = _read(str(name), entry, overrides or {})
            earlier = {experiment.name: experiment for experiment in experiments}
            experiments.append(replace(read, follows=earlier.get(read.settings.restore or "")))
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
    faults = _metric_faults(settings)
    if faults:
        raise InputError("\n".join(faults))
    if settings.run not in PRESETS:
        raise InputError(f"run: unknown algorithm {settings.run!r}. {did_you_mean(settings.run, PRESETS)}")
    algorithm = algorithm_class(settings.run)
    space, config = read_space(settings.config), None
    for place, domain in mutations(settings.scheduler).items():
        space = space if _is_set(space, place) else with_value(space, place, domain)
    for example in examples(space):
        checked = algorithm.get_default_config()
        faults += [fault for fault in _config_faults(checked, {**example, "env": settings.env}) if fault not in faults]
        if not faults:
            checked.validate()
            faults += [fault for fault in _unevaluated(settings, checked) if fault not in faults]
        config = config or checked
    if faults or config is None:
        raise InputError("\n".join(faults))
    experiment = Experiment(name, settings, algorithm, space, config)
    make_scheduler(settings.scheduler, metric=experiment.metric, mode=settings.mode)
    return experiment


def _is_set(space: Any, place: Place) -> bool:
    for key in place:
        if not isinstance(space, Mapping) or key not in space:
            return False
        space = space[key]
    return True


def _config_faults(config: AgenticConfig, given: Mapping[str, Any]) -> list[str]:
    try:
        config.update_from_dict(given)
    except InputError as error:
        return str(error).splitlines()
    return []


def _unevaluated(settings: ExperimentSettings, config: AgenticConfig) -> list[str]:
    if config.evaluation_interval:
        return []
    return [
        f"{key}.{metric}: there are no evaluations; set config.evaluation_interval"
        for key in ("stop", "pass_criteria")
        for metric in getattr(settings, key)
        if metric.startswith("evaluation/")
    ]


def _metric_faults(settings: ExperimentSettings) -> list[str]:
    return [
        f"{key}.{metric}: no such metric; use {_RENAMED_METRICS[metric]}"
        for key in ("stop", "pass_criteria")
        for metric in getattr(settings, key)
        if metric in _RENAMED_METRICS
    ]
