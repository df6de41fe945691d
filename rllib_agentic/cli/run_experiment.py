"""Run a checked experiment on Tune, go on with one that was interrupted, and gather what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rllib_agentic.algorithms.checkpoints import find_checkpoint
from rllib_agentic.cli.experiment import Experiment
from rllib_agentic.cli.interrupt import InterruptStopper, stops_on_interrupt
from rllib_agentic.cli.outcome import TrialOutcome, flat_metrics, judge
from rllib_agentic.cli.places import Place, at
from rllib_agentic.cli.schedulers import EndNotes, goes_on, make_scheduler, prepare_resume
from rllib_agentic.errors import InputError
from rllib_agentic.tracking.params import flat_params, plain

SPEC_FILE = "experiment.yaml"
END_FILE = "outcome.json"


def run(
    experiment: Experiment, *, callbacks: Sequence[Any], stopper: InterruptStopper, keep_stdout_clean: bool = False
) -> list[TrialOutcome]:
    """Run all trials to their end, from their last checkpoints where the experiment was begun before.

    With ``keep_stdout_clean`` whatever Tune or a callback prints goes to standard error.

    Raises:
        InputError: an experiment of this name exists with another configuration.
    """
    from ray import tune
    from ray.tune.tune_config import ResumeConfig

    settings = experiment.settings
    folder = experiment_folder(experiment)
    begun = (folder / SPEC_FILE).is_file()
    if begun:
        _check_same(experiment, folder)
    folder.mkdir(parents=True, exist_ok=True)
    _write_spec(experiment, folder)
    (folder / END_FILE).unlink(missing_ok=True)
    stopper.criteria = settings.stop
    os.environ |= {"TUNE_DISABLE_SIGINT_HANDLER": "1", "RAY_AIR_NEW_OUTPUT": "0"}
    resume = ResumeConfig.ResumeType.RESUME
    scheduler = make_scheduler(settings.scheduler, metric=experiment.metric, mode=settings.mode)
    if begun:
        prepare_resume(scheduler, lambda trial: goes_on(trial, stopper))
    redirected = contextlib.redirect_stdout(sys.stderr) if keep_stdout_clean else contextlib.nullcontext()
    with stops_on_interrupt(stopper), redirected, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consider boosting PBT performance")  # told to Trainables' authors
        analysis = tune.run(
            settings.run,
            name=experiment.name,
            config=experiment.param_space,
            stop=stopper,
            num_samples=settings.num_samples,
            storage_path=str(folder.parent),
            checkpoint_config=tune.CheckpointConfig(**settings.checkpoint_config.model_dump()),
            max_failures=settings.max_failures,
            max_concurrent_trials=settings.max_concurrent_trials,
            scheduler=scheduler,
            restore=None if begun else _start_of(experiment),
            resume=begun,
            resume_config=ResumeConfig(finished=resume, unfinished=resume, errored=resume) if begun else None,
            callbacks=[EndNotes(stopper), *callbacks],
            trial_name_creator=partial(_trial_name, experiment.name),
            trial_dirname_creator=partial(_trial_name, experiment.name),
            raise_on_failed_trial=False,
            verbose=0,
        )
    outcomes = outcomes_of(experiment, analysis.trials, stopper)
    if all(outcome.status == "finished" for outcome in outcomes):
        (folder / END_FILE).write_text(
            json.dumps({"stop": settings.stop, "trials": [o.as_json() | {"folder": o.folder} for o in outcomes]})
        )
    return outcomes


def _start_of(experiment: Experiment) -> str | None:
    """The checkpoint that its trial begins from.

    Raises:
        InputError: there is none, perhaps because the experiment before it failed.
    """
    if experiment.settings.restore is None:
        return None
    follows = experiment.follows
    return str(find_checkpoint(experiment.settings.restore if follows is None else experiment_folder(follows)))


def outcomes_of(experiment: Experiment, trials: Sequence[Any], stopper: InterruptStopper) -> list[TrialOutcome]:
    """What has come of Tune's trials so far."""
    return [_outcome(trial, experiment.settings.pass_criteria, stopper, experiment.places) for trial in trials]


def _trial_name(experiment: str, trial: Any) -> str:
    return f"{experiment}_{trial.trial_id}"


def experiment_folder(experiment: Experiment) -> Path:
    """Where the experiment's trials, checkpoints and trajectories go."""
    return Path(experiment.settings.storage_path).expanduser().resolve() / experiment.name


def completed(experiment: Experiment) -> bool:
    """Whether the same experiment ended before, at the same stop criteria.

    Raises:
        InputError: an experiment of this name exists with another configuration.
    """
    folder = experiment_folder(experiment)
    if not (folder / SPEC_FILE).is_file():
        return False
    _check_same(experiment, folder)
    end = folder / END_FILE
    return end.is_file() and json.loads(end.read_text())["stop"] == experiment.settings.stop


def set_aside(experiment: Experiment) -> Path | None:
    """Rename the folder of an earlier experiment of this name, and say what it is called now."""
    folder = experiment_folder(experiment)
    if not folder.exists():
        return None
    aside = folder.with_name(f"{folder.name}.{time.strftime('%Y%m%d-%H%M%S')}")
    folder.rename(aside)
    return aside


def _write_spec(experiment: Experiment, folder: Path) -> None:
    text = yaml.safe_dump({experiment.name: _spec(experiment)}, sort_keys=False, allow_unicode=True)
    (folder / SPEC_FILE).write_text(text, encoding="utf-8")


def _spec(experiment: Experiment) -> dict[str, Any]:
    return plain(experiment.settings.model_dump(exclude_unset=True, mode="json"))


def _check_same(experiment: Experiment, folder: Path) -> None:
    stored = yaml.safe_load((folder / SPEC_FILE).read_text(encoding="utf-8"))[experiment.name]
    wanted = _spec(experiment)
    before, after = _identity(stored), _identity(wanted)
    changed = [
        f"  {key}: {before.get(key, '(not set)')} -> {after.get(key, '(not set)')}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]
    if changed:
        raise InputError(
            f"{folder}: an experiment of this name was begun with another configuration:\n"
            + "\n".join(changed)
            + "\nGive this one another name (--experiment-name), or set the old one aside (--restart)."
        )


def _identity(spec: Mapping[str, Any]) -> dict[str, str]:
    return flat_params({key: spec[key] for key in ("run", "env", "config", "num_samples") if key in spec})


def _latest(trial: Any, names: Iterable[str]) -> dict[str, float]:
    """The last value that a trial reported of each metric, also where its last result has none (held-out ones)."""
    known = {name: trial.metric_analysis.get(name, {}).get("last") for name in names}
    return {name: float(value) for name, value in known.items() if value is not None}


def _outcome(
    trial: Any, criteria: Mapping[str, float], stopper: InterruptStopper, places: Sequence[Place]
) -> TrialOutcome:
    metrics = flat_metrics(trial.last_result or {})
    failed = trial.status != "TERMINATED"
    error = None
    if failed:
        error_file = trial.error_file
        error = Path(error_file).read_text(errors="replace") if error_file else f"the trial ended as {trial.status}"
    alarm = (trial.last_result or {}).get("stopped_by")
    interrupted = stopper.interrupted and stopper.reasons.get(trial.trial_id) != "criteria"
    return TrialOutcome(
        name=str(trial),
        status="failed" if failed else "stopped" if alarm else "interrupted" if interrupted else "finished",
        iterations=int(metrics.get("training_iteration", 0)),
        metrics=metrics,
        checkpoint=trial.checkpoint.path if trial.checkpoint else None,
        folder=trial.storage.trial_fs_path,
        pass_criteria=judge(criteria, _latest(trial, criteria) | metrics),
        params=[[list(path), plain(at(trial.config, path))] for path in places],
        error=error or alarm,
    )
