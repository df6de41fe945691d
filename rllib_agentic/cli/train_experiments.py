"""Train checked experiments one after the other, and say how each ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rllib_agentic.cli.cluster import ClusterOptions, connected
from rllib_agentic.cli.console import EXIT_FAILED, EXIT_INTERRUPTED, print_json
from rllib_agentic.cli.describe import check_environment, check_model, describe
from rllib_agentic.cli.experiment import Experiment
from rllib_agentic.cli.outcome import TrialOutcome
from rllib_agentic.cli.report import report, report_completed
from rllib_agentic.errors import InputError


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """How a command trains.

    Attributes:
        as_json: standard output carries one JSON object an experiment, all else goes to standard error.
        must_resume: an experiment that does not exist yet is an error.
        restart: set an earlier experiment of the same name aside.
        verbosity: 0, 1 or 2.
    """

    as_json: bool = False
    must_resume: bool = False
    restart: bool = False
    verbosity: int = 0


def train_experiments(experiments: Sequence[Experiment], options: TrainOptions, cluster: ClusterOptions) -> int:
    """Train all of them, each after the other.

    Returns:
        0 where all ended well and met their pass criteria (of a sweep, the best trial), 1 where one did not, 130 after
        Ctrl-C.
    """
    from rllib_agentic.cli.run_experiment import completed

    for experiment in experiments:
        _prepare(experiment, options)
    codes = [0]
    for experiment in experiments:
        if completed(experiment):
            outcomes = report_completed(experiment, options)
        else:
            outcomes = _train(experiment, options, cluster)
        if options.as_json:
            entry = {"experiment": experiment.name, "trials": [outcome.as_json() for outcome in outcomes]}
            print_json(entry | ({"best": _best(experiment, outcomes)} if experiment.is_sweep else {}))
        if any(outcome.status == "interrupted" for outcome in outcomes):
            return EXIT_INTERRUPTED
        codes.append(0 if _passed(experiment, outcomes) else EXIT_FAILED)
    return max(codes)


def _best(experiment: Experiment, outcomes: Sequence[TrialOutcome]) -> str | None:
    from rllib_agentic.cli.sweep_report import sweep_of

    best = sweep_of(experiment, outcomes).best
    return None if best is None else best.name


def _passed(experiment: Experiment, outcomes: Sequence[TrialOutcome]) -> bool:
    """A sweep has passed where no trial failed and the best one met the criteria."""
    if not experiment.is_sweep:
        return all(outcome.passed for outcome in outcomes)
    best = _best(experiment, outcomes)
    return all(o.status != "failed" for o in outcomes) and all(o.passed for o in outcomes if o.name == best)


def dry_run(experiments: Sequence[Experiment], *, as_json: bool) -> int:
    """Show what each experiment would run, and start nothing."""
    for experiment in experiments:
        plan = describe(experiment)
        if as_json:
            print_json({"experiment": experiment.name, **plan})
        else:
            print(yaml.safe_dump({experiment.name: plan}, sort_keys=False, allow_unicode=True), end="")
    return 0


def _prepare(experiment: Experiment, options: TrainOptions) -> None:
    from rllib_agentic.cli.run_experiment import experiment_folder, set_aside

    check_model(experiment)
    check_environment(experiment)
    if options.restart and (aside := set_aside(experiment)):
        print(f"{experiment.name}: the earlier experiment is now {aside}", file=sys.stderr)
    if options.must_resume and not experiment_folder(experiment).exists():
        raise InputError(f"--resume: there is no experiment to go on with at {experiment_folder(experiment)}")


def _train(experiment: Experiment, options: TrainOptions, cluster: ClusterOptions) -> list[TrialOutcome]:
    from rllib_agentic.cli.interrupt import InterruptStopper
    from rllib_agentic.cli.run_experiment import experiment_folder, outcomes_of, run
    from rllib_agentic.cli.sweep_report import FOLDER, write_sweep
    from rllib_agentic.tracking.history import HistoryCallback
    from rllib_agentic.tracking.mlflow import AgenticMLflowCallback
    from rllib_agentic.tracking.progress import ProgressCallback

    stopper = InterruptStopper()

    def of_sweep(trials: Sequence[Any]) -> Path | None:
        folder = experiment_folder(experiment) / FOLDER
        if experiment.is_sweep:
            write_sweep(experiment, outcomes_of(experiment, trials, stopper), folder)
        return folder if experiment.is_sweep else None

    mlflow = AgenticMLflowCallback(
        resolve=experiment.resolve, interrupted=lambda: stopper.interrupted, of_sweep=of_sweep
    )
    progress = ProgressCallback("stderr" if options.as_json else "stdout", stop=experiment.settings.stop)
    with connected(cluster, verbosity=options.verbosity):
        callbacks = [HistoryCallback(), progress, mlflow]
        outcomes = run(experiment, callbacks=callbacks, stopper=stopper, keep_stdout_clean=options.as_json)
    report(experiment, outcomes, options)
    return outcomes
