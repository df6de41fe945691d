"""A sweep on Tune: several trials, and what a second start leaves alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from rllib_agentic.cli.experiment import Experiment, read_experiments
from rllib_agentic.cli.interrupt import InterruptStopper
from rllib_agentic.cli.outcome import TrialOutcome
from rllib_agentic.cli.run_experiment import END_FILE, completed, experiment_folder, run
from rllib_agentic.cli.schedulers import END_NOTE
from rllib_agentic.tracking import HistoryCallback, read_history

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    before = dict(os.environ)  # Tune is steered by variables, which would steer the next module's tests too
    ray.init(address="local", num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
    os.environ.clear()
    os.environ.update(before)


def experiment(folder: Path, name: str = "sweep", **changes: Any) -> Experiment:
    entry = {
        "run": "GRPO",
        "env": "bandit",
        "stop": {"training_iteration": 2},
        "storage_path": str(folder),
        "config": {
            "env_config": {
                "backend": "local",
                "args": {"safe_arms": 2, "risky_arms": 2, "low_reward": 0.0, "high_probability": 1.0, "pulls": 2},
            },
            "model": {"preset": "tiny", "hidden_size": 16, "num_layers": 1, "num_heads": 2},
            "rollout": {"group_size": 2, "groups_per_iteration": 2, "max_turns": 2},
            "filters": [{"type": "reward_variance", "rule": "threshold", "threshold": {"grid_search": [0.0, 0.4]}}],
            "refill": {"stop_after_empty": None},
            "lr": "tune.loguniform(1e-4, 1e-2)",
        },
        **changes,
    }
    (read,) = read_experiments({name: entry}, "test")
    return read


def go(wanted: Experiment) -> list[TrialOutcome]:
    return run(wanted, callbacks=[HistoryCallback()], stopper=InterruptStopper(), keep_stdout_clean=True)


def iterations(outcomes: list[TrialOutcome]) -> list[int]:
    assert not (errors := [o.error for o in outcomes if o.error]), errors[0]
    for outcome in outcomes:
        trained = [int(row["training_iteration"]) for row in read_history(Path(outcome.folder))]
        assert trained == list(range(1, outcome.iterations + 1)), outcome
    return sorted(outcome.iterations for outcome in outcomes)


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
