"""Train the trials of an experiment file one after the other, in one process.

The numbers are those of `rllib train file`, without the start of a process a trial: for many short trials on a small
machine. Beside them stands `cpu_seconds`, the processor time of a trial so far, which other work on the machine changes
less than the clock.

    python benchmarks/experiments/run_grid.py tuned_examples/context_append_only.yaml --minutes 4

Trials that are done are left alone, so the command can be given again until all are. No checkpoints, no MLflow.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import ray
from ray.tune.search.variant_generator import generate_variants

from rllib_agentic.cli.experiment import Experiment, read_experiments
from rllib_agentic.cli.interrupt import InterruptStopper
from rllib_agentic.cli.outcome import TrialOutcome, flat_metrics
from rllib_agentic.cli.places import at, searched
from rllib_agentic.cli.run_experiment import END_FILE
from rllib_agentic.cli.yaml_file import read_experiment_file
from rllib_agentic.tracking.history import HISTORY_FILE, append_history, read_history
from rllib_agentic.tracking.params import plain

_MOST_ITERATIONS = 10_000


def run_experiment(experiment: Experiment, folder: Path, deadline: float) -> bool:
    """Train what is not done yet, as long as there is time; whether all trials are done."""
    places = [path for path, _ in searched(experiment.space)]
    outcomes, complete = [], True
    for number, (_, config) in enumerate(generate_variants(experiment.space)):
        place = folder / experiment.name / f"{experiment.name}_{number:05d}"
        place.mkdir(parents=True, exist_ok=True)
        if not _done(experiment, read_history(place)):
            if time.monotonic() > deadline:
                complete = False
                continue
            _train(experiment, config, place)
        history = read_history(place)
        params = [[list(path), plain(at(config, path))] for path in places]
        outcomes.append(
            TrialOutcome(
                place.name, "finished", len(history), flat_metrics(history[-1]), None, str(place), params=params
            )
        )
    if complete:
        trials = [outcome.as_json() | {"folder": outcome.folder} for outcome in outcomes]
        (folder / experiment.name / END_FILE).write_text(
            json.dumps({"stop": experiment.settings.stop, "trials": trials})
        )
    return complete


def _train(experiment: Experiment, config: dict[str, Any], place: Path) -> None:
    (place / HISTORY_FILE).unlink(missing_ok=True)
    given = {**config, "env": experiment.settings.env, "store": {"enabled": False}}
    began = time.process_time()
    algorithm = experiment.algorithm.get_default_config().update_from_dict(given).build_algo()
    stopper = InterruptStopper(experiment.settings.stop)
    try:
        for _ in range(_MOST_ITERATIONS):
            result = algorithm.train()
            append_history(place, result | {"cpu_seconds": time.process_time() - began})
            for event in result.get("events", []):
                with open(place / "events.jsonl", "a", encoding="utf-8") as file:
                    file.write(json.dumps(event) + "\n")
            if stopper.reached(result) or result.get("done"):
                break
    finally:
        algorithm.stop()
    last = read_history(place)[-1]
    success = last.get("evaluation/success_rate", last.get("env_runners/success_rate"))
    print(f"{place.name}: {len(read_history(place))} iterations, success {success:.2f}", flush=True)


def _done(experiment: Experiment, history: list[dict[str, float]]) -> bool:
    return bool(history) and any(history[-1].get(key, 0) >= value for key, value in experiment.settings.stop.items())


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--folder", type=Path, default=Path("runs"))
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no trial after so long")
    given = parser.parse_args()
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    deadline = time.monotonic() + 60 * given.minutes
    for file in given.files:
        for experiment in read_experiments(read_experiment_file(file), file):
            complete = run_experiment(experiment, given.folder.resolve(), deadline)
            print(
                f"{experiment.name}: {'complete' if complete else 'not complete: give the command again'}", flush=True
            )


if __name__ == "__main__":
    main()
