"""A sweep on Tune: several trials, and what a second start leaves alone."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.tune import Callback

from rllib_agentic.cli.experiment import Experiment, read_experiments
from rllib_agentic.cli.interrupt import InterruptStopper
from rllib_agentic.cli.outcome import TrialOutcome
from rllib_agentic.cli.run_experiment import END_FILE, completed, experiment_folder, run
from rllib_agentic.cli.schedulers import END_NOTE
from rllib_agentic.cli.sweep_report import BEST_FILE, write_sweep
from rllib_agentic.cli.yaml_file import read_experiment_file
from rllib_agentic.tracking import HistoryCallback, ProgressCallback, read_history

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    before = dict(os.environ)  # Tune is steered by variables, which would steer the next module's tests too
    ray.init(address="local", num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
    os.environ.clear()
    os.environ.update(before)


TINY: dict[str, Any] = {
    "env_config": {
        "backend": "local",
        "args": {"safe_arms": 2, "risky_arms": 2, "low_reward": 0.0, "high_probability": 1.0, "pulls": 2},
    },
    "model": {"preset": "tiny", "hidden_size": 16, "num_layers": 1, "num_heads": 2},
    "rollout": {"group_size": 2, "groups_per_iteration": 2, "max_turns": 2},
}


def experiment(folder: Path, name: str = "sweep", **changes: Any) -> Experiment:
    entry = {
        "run": "GRPO",
        "env": "bandit",
        "stop": {"training_iteration": 2},
        "storage_path": str(folder),
        "config": {
            **TINY,
            "filters": [{"type": "reward_variance", "rule": "threshold", "threshold": {"grid_search": [0.0, 0.4]}}],
            "refill": {"stop_after_empty": None},
            "lr": "tune.loguniform(1e-4, 1e-2)",
        },
        **changes,
    }
    (read,) = read_experiments({name: entry}, "test")
    return read


def go(wanted: Experiment, *callbacks: Callback) -> list[TrialOutcome]:
    return run(wanted, callbacks=[HistoryCallback(), *callbacks], stopper=InterruptStopper(), keep_stdout_clean=True)


def iterations(outcomes: list[TrialOutcome]) -> list[int]:
    assert not (errors := [o.error for o in outcomes if o.error]), errors[0]
    for outcome in outcomes:
        trained = [int(row["training_iteration"]) for row in read_history(Path(outcome.folder))]
        assert trained == list(range(1, outcome.iterations + 1)), outcome
    return sorted(outcome.iterations for outcome in outcomes)


def test_asha_gives_a_bad_trial_up(tmp_path: Path) -> None:
    risky = {"safe_arms": 2, "risky_arms": 2, "low_reward": 0.0, "pulls": 2}
    sweep = experiment(
        tmp_path,
        stop={"training_iteration": 4},
        metric="env_runners/episode_return_mean",
        scheduler={"type": "asha", "grace_period": 1, "reduction_factor": 2, "max_t": 4},
        max_concurrent_trials=1,  # so that the bad trial is judged by the good one
        config={
            **TINY,
            "env_config": {
                "backend": "local",
                "args": {**risky, "high_probability": {"grid_search": [1.0, 0.01]}},
            },
        },
    )
    good, bad = go(sweep)
    assert iterations([good, bad]) == [1, 4] and bad.iterations == 1
    assert [json.loads((Path(o.folder) / END_NOTE).read_text())["reason"] for o in (good, bad)] == [
        "criteria",
        "scheduler",
    ]
    (Path(bad.folder) / END_NOTE).write_text(json.dumps({"reason": "interrupt"}))  # as if it had been broken off
    assert iterations(go(sweep)) == [2, 4]  # it goes on, and is judged by what the good one did before


def test_a_population_takes_over_the_better_trial(tmp_path: Path) -> None:
    sweep = experiment(
        tmp_path,
        stop={"training_iteration": 4},
        metric="env_runners/episode_return_mean",
        scheduler={
            "type": "pbt",
            "synch": True,
            "perturbation_interval": 2,
            "quantile_fraction": 0.5,
            "resample_probability": 0.0,
            "hyperparam_mutations": {"lr": "tune.loguniform(1e-4, 1e-2)", "learner": {"entropy_coefficient": [0, 0.5]}},
        },
        config={**TINY, "lr": 1.0e-3, "seed": {"grid_search": [0, 1]}},
    )
    shown = io.StringIO()
    outcomes = go(sweep, ProgressCallback(shown))
    assert iterations(outcomes) == [4, 4]

    moves = [json.loads(line) for line in (experiment_folder(sweep) / "pbt_global.txt").read_text().splitlines()]
    donor, config = moves[0][-2:]
    assert config["lr"] in (pytest.approx(0.8e-3), pytest.approx(1.2e-3)) and donor["lr"] == 1.0e-3
    assert config["learner"]["entropy_coefficient"] in (0, 0.5)

    (taker,) = [o for o in outcomes if f"{o.name}: iteration 2: goes on from the checkpoint of" in shown.getvalue()]
    (other,) = [o for o in outcomes if o is not taker]
    rates = {o.name: [row["learners/default_policy/lr"] for row in read_history(Path(o.folder))] for o in outcomes}
    assert rates[other.name] == [1.0e-3] * 4 and rates[taker.name] == [1.0e-3] * 2 + [config["lr"]] * 2
    steps = [o.metrics["learners/default_policy/lifetime_optimizer_steps"] for o in (taker, other)]
    assert steps[0] == steps[1] == 4  # the taker goes on with the other's optimizer
    assert f"goes on from the checkpoint of {other.name} with" in shown.getvalue()
    assert f"lr 0.001 -> {config['lr']}" in shown.getvalue()
    assert dict((".".join(map(str, place)), value) for place, value in taker.params) == {
        "seed": config["seed"],
        "lr": config["lr"],
        "learner.entropy_coefficient": config["learner"]["entropy_coefficient"],
    }
    (best,) = read_experiments(read_experiment_file(str(write_best(sweep, outcomes, tmp_path))), "best.yaml")
    assert best.config.lr in (1.0e-3, config["lr"]) and not best.is_sweep and best.settings.scheduler is None


def write_best(sweep: Experiment, outcomes: list[TrialOutcome], folder: Path) -> Path:
    write_sweep(sweep, outcomes, folder / "report")
    return folder / "report" / BEST_FILE


def raised(wanted: Experiment, to: int) -> Experiment:
    return replace(wanted, settings=wanted.settings.model_copy(update={"stop": {"training_iteration": to}}))


def test_a_resumed_sweep_leaves_alone_what_is_done(tmp_path: Path) -> None:
    sweep = experiment(tmp_path)
    outcomes = go(sweep)
    assert iterations(outcomes) == [2, 2] and {o.status for o in outcomes} == {"finished"}
    filled = [dict((".".join(map(str, place)), value) for place, value in o.params) for o in outcomes]
    assert sorted(params["filters.0.threshold"] for params in filled) == [0.0, 0.4]
    assert all(1e-4 <= params["lr"] <= 1e-2 for params in filled) and completed(sweep)

    (experiment_folder(sweep) / END_FILE).unlink()  # as where the session died before it could write it
    assert iterations(go(sweep)) == [2, 2]

    first = Path(outcomes[0].folder) / END_NOTE
    assert json.loads(first.read_text()) == {"reason": "criteria"}
    first.write_text(json.dumps({"reason": "scheduler"}))  # a trial that ASHA gave up
    assert not completed(raised(sweep, 3))
    assert iterations(go(raised(sweep, 3))) == [2, 3]
