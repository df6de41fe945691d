"""The end of a sweep: a table, a plot, and the best trial as a YAML file that runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from rllib_agentic.cli.experiment import Experiment
from rllib_agentic.cli.outcome import TrialOutcome
from rllib_agentic.cli.places import short_names, with_value
from rllib_agentic.tracking.history import read_history
from rllib_agentic.tracking.params import plain
from rllib_agentic.tracking.sweep import Sweep, SweepTrial
from rllib_agentic.tracking.sweep_plot import plot_sweep

FOLDER, PLOT_FILE, BEST_FILE, TABLE_FILE = "sweep", "sweep.png", "best.yaml", "trials.json"


def sweep_of(experiment: Experiment, outcomes: Sequence[TrialOutcome]) -> Sweep:
    """What the trials of an experiment came to."""
    paths = [tuple(place) for place, _ in outcomes[0].params]
    names = short_names(paths)
    trials = tuple(
        SweepTrial(
            name=outcome.name,
            params=dict(zip(names, [value for _, value in outcome.params], strict=True)),
            history=read_history(Path(outcome.folder)),
            status=outcome.status,
            folder=outcome.folder,
        )
        for outcome in outcomes
    )
    return Sweep(experiment.name, trials, experiment.metric, experiment.settings.mode)


def write_sweep(experiment: Experiment, outcomes: Sequence[TrialOutcome], folder: Path) -> tuple[Sweep, dict[str, str]]:
    """Write the sweep's table, plot and best trial.

    Args:
        experiment: with search spaces.
        outcomes: of its trials.
        folder: where the files go.

    Returns:
        The sweep, and what was written, and where.
    """
    sweep = sweep_of(experiment, outcomes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TABLE_FILE).write_text(json.dumps(plain(sweep.rows()), indent=1) + "\n", encoding="utf-8")
    places = {"table": str(folder / TABLE_FILE)}
    best = sweep.best
    if best is not None:
        places["plot"] = str(plot_sweep(sweep, folder / PLOT_FILE))
        outcome = next(outcome for outcome in outcomes if outcome.name == best.name)
        (folder / BEST_FILE).write_text(_best_yaml(experiment, sweep, best, outcome), encoding="utf-8")
        places["best trial, ready to run"] = f"rllib train file {folder / BEST_FILE}"
    return sweep, places


def _best_yaml(experiment: Experiment, sweep: Sweep, best: SweepTrial, outcome: TrialOutcome) -> str:
    """The experiment with the best trial's values in place of its search spaces."""
    values: dict[Any, Any] = {tuple(place): value for place, value in outcome.params}
    entry = plain(experiment.settings.model_dump(exclude_unset=True, mode="json"))
    for searching in ("num_samples", "scheduler", "metric", "mode", "max_concurrent_trials", "restore"):
        entry.pop(searching, None)
    entry["config"] = experiment.settings.config
    for place, value_there in values.items():
        entry["config"] = with_value(entry["config"], place, value_there)
    text = yaml.safe_dump({f"{experiment.name}-best": plain(entry)}, sort_keys=False, allow_unicode=True)
    value = best.last(sweep.metric)
    return (
        f"# The best trial of {experiment.name}: {sweep.metric} {value:.4g} after {best.iterations} iterations\n{text}"
    )
