"""The end of an experiment, for people: a table a trial, its plot, and where everything is."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rllib_agentic.cli.experiment import Experiment
from rllib_agentic.cli.outcome import Criterion, TrialOutcome, judge
from rllib_agentic.store import find_stores
from rllib_agentic.tracking.history import read_history
from rllib_agentic.tracking.mlflow import PLOT_FILE, RUN_FILE
from rllib_agentic.tracking.mlflow_run import read_run_file
from rllib_agentic.tracking.plot import plot_learning_curve
from rllib_agentic.tracking.summary import summarize

if TYPE_CHECKING:
    from rllib_agentic.cli.train_experiments import TrainOptions

_WIDTH = 240  # of what is no terminal: paths stay whole


def report(experiment: Experiment, outcomes: Sequence[TrialOutcome], options: TrainOptions) -> None:
    """Print a table a trial, on standard error where standard output is for a machine."""
    stream = sys.stderr if options.as_json else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else _WIDTH, soft_wrap=True, highlight=False)
    if experiment.is_sweep and outcomes:
        _report_sweep(console, experiment, outcomes)
    for outcome in outcomes:
        folder = Path(outcome.folder)
        history = [] if experiment.is_sweep else read_history(folder)
        if history:
            plot = plot_learning_curve(history, folder / PLOT_FILE, title=outcome.name)
            console.print(summarize(outcome.name, history, _places(outcome, folder, plot)).table())
        for key, criterion in outcome.pass_criteria.items():
            verdict = "[green]met[/]" if criterion.met else "[red]not met[/]"
            got = "not reported" if criterion.got is None else f"{criterion.got:.4g}"
            trial = f"{outcome.name}: " if experiment.is_sweep else ""
            console.print(f"{trial}{key}: wanted {criterion.wanted:g}, got {got}: {verdict}")
        if outcome.status == "failed":
            console.print(f"[red]{outcome.name} failed:[/]")
            console.print(outcome.error, markup=False)
        if outcome.status == "stopped":
            console.print(f"[red]{outcome.name} was stopped by an alarm:[/] {outcome.error}", markup=True)
        if outcome.status == "interrupted":
            console.print(f"{outcome.name}: interrupted after iteration {outcome.iterations}; the same command goes on")


def _report_sweep(console: Console, experiment: Experiment, outcomes: Sequence[TrialOutcome]) -> None:
    from rllib_agentic.cli.run_experiment import experiment_folder
    from rllib_agentic.cli.sweep_report import FOLDER, write_sweep

    sweep, places = write_sweep(experiment, outcomes, experiment_folder(experiment) / FOLDER)
    console.print(sweep.table())
    if (over_seeds := sweep.settings_table()) is not None:
        console.print(over_seeds)
    if sweep.best is None:
        console.print(f"no trial has reported {experiment.metric}, so none is the best", markup=False)
    for what, where in places.items():
        console.print(f"{what}: {where}", markup=False)


def report_completed(experiment: Experiment, options: TrainOptions) -> list[TrialOutcome]:
    """Print what came of an experiment that is complete already, and how to run it again."""
    from rllib_agentic.cli.run_experiment import END_FILE, experiment_folder

    folder = experiment_folder(experiment)
    stored = json.loads((folder / END_FILE).read_text())["trials"]
    outcomes = [_stored_outcome(entry, experiment.settings.pass_criteria) for entry in stored]
    report(experiment, outcomes, options)
    print(
        f"{experiment.name} was complete already. To train it anew add --restart; to go on, raise its stop criteria.",
        file=sys.stderr,
    )
    return outcomes


def _stored_outcome(entry: Mapping[str, Any], criteria: Mapping[str, float]) -> TrialOutcome:
    fields = {key: value for key, value in entry.items() if key != "pass_criteria"}
    judged: dict[str, Criterion] = judge(criteria, _values(entry))
    return TrialOutcome(**fields, pass_criteria=judged)


def _values(entry: Mapping[str, Any]) -> dict[str, float]:
    """What a stored outcome knows of metrics: its last result, and what its criteria had seen earlier."""
    seen = {key: judged["got"] for key, judged in entry.get("pass_criteria", {}).items()}
    return {key: value for key, value in seen.items() if value is not None} | entry["metrics"]


def _places(outcome: TrialOutcome, folder: Path, plot: Path) -> dict[str, str]:
    places = {"plot": str(plot)}
    if outcome.checkpoint is not None:
        places["checkpoint"] = outcome.checkpoint
    if stores := find_stores(folder):
        places["trajectories"] = str(stores[0])
    stored = read_run_file(folder / RUN_FILE)
    if stored is not None:
        places["MLflow run"] = f"{stored.run_id} in {stored.tracking_uri}"
    return places
