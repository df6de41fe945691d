"""Progress, history and MLflow under a real Tune, with a trainable that takes no time."""

from __future__ import annotations

import io
import json
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import ray
from ray import tune

from rllib_agentic.store import TrajectoryWriter
from rllib_agentic.tracking import AgenticMLflowCallback, HistoryCallback, ProgressCallback, read_history
from rllib_agentic.tracking.sqlite_store import make_database
from rllib_agentic.trajectory import FinishReason, Task, Trajectory, Turn

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, object_store_memory=100_000_000, include_dashboard=False, log_to_driver=False)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test module
    yield
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    ray.shutdown()


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow takes seconds to make its tables: once is enough."""
    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    make_database(file)
    return file


@pytest.fixture
def storage(empty_database: Path, tmp_path: Path) -> Path:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return tmp_path


class Learns(tune.Trainable):
    """Success rises by a tenth an iteration; ``fail_at`` raises there, once the marker file does not exist."""

    def setup(self, config: dict[str, Any]) -> None:
        self.successes = 0
        self.marker = config.get("marker")
        self.fail_at = config.get("fail_at")
        self.event_at = config.get("event_at")

    def step(self) -> dict[str, Any]:
        self.successes += 1
        if self.successes == self.fail_at and not (self.marker and Path(self.marker).exists()):
            if self.marker:
                Path(self.marker).touch()
            raise RuntimeError("environment of the test failed")
        rate = self.successes / 10
        result: dict[str, Any] = {
            "env_runners": {"success_rate": rate, "episode_return_mean": float("nan"), "tokens_per_s": 100.0},
            "learners": {"default_policy": {"trained_tokens": 5}},
        }
        if self.successes == self.event_at:
            result["events"] = [{"kind": "curriculum", "iteration": self.successes, "message": "10 to 20 turns"}]
        if self.successes == 1:
            result["evaluation_at_start"] = {"success_rate": 0.0}
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        (Path(checkpoint_dir) / "state.json").write_text(json.dumps(self.successes))

    def load_checkpoint(self, checkpoint_dir: str | None) -> None:  # type: ignore[override]
        assert checkpoint_dir is not None
        self.successes = json.loads((Path(checkpoint_dir) / "state.json").read_text())


def fit(
    folder: Path,
    out: io.StringIO,
    config: dict[str, Any],
    *more: tune.Callback,
    iterations: int = 3,
    limit_mb: float = 200,
    **run: Any,
) -> tune.ResultGrid:
    run_config = tune.RunConfig(
        name="exp",
        storage_path=str(folder),
        stop={"training_iteration": iterations},
        verbose=0,
        callbacks=callbacks(out, *more, limit_mb=limit_mb),
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True, checkpoint_frequency=2),
        **run,
    )
    return tune.Tuner(Learns, param_space=config, run_config=run_config).fit()


def callbacks(out: io.StringIO, *more: tune.Callback, limit_mb: float = 200) -> list[tune.Callback]:
    to_mlflow = AgenticMLflowCallback(flush_timeout_s=60, checkpoint_limit_mb=limit_mb, of_sweep=sweep_folder)
    return [HistoryCallback(), ProgressCallback(out), to_mlflow, *more]


def sweep_folder(trials: Sequence[Any]) -> Path:
    folder = Path(trials[0].storage.experiment_fs_path) / "sweep"
    folder.mkdir(exist_ok=True)
    (folder / "table.txt").write_text(str(len(trials)))
    return folder


def runs(folder: Path) -> list[Any]:
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("exp")
    assert experiment is not None
    return client.search_runs([experiment.experiment_id])


def paths(folder: Path, run: Any) -> set[str]:
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    return {file.path for file in client.list_artifacts(run.info.run_id)}


class Stores(tune.Callback):
    """Stands for the algorithm, which writes its trajectories below the trial's folder."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        ids = np.array([1, 2], np.int32)
        turn = Turn(ids, ids, np.zeros(2, np.float32), ids, FinishReason.STOP, 0, "hello there")
        episode = Trajectory(Task("e", "train", 0), "g", 0, (), (turn,), True, False, True, "terminated")
        TrajectoryWriter(Path(trial.path) / "trajectories").write(1, [episode])


def test_one_trial_is_one_finished_run_with_everything(storage: Path) -> None:
    out = io.StringIO()
    results = fit(storage, out, {"lr": 1e-6, "rollout": {"max_turns": 5}, "event_at": 2}, Stores())
    lines = out.getvalue().splitlines()
    assert len(lines) == 4 and "iteration 3/3" in lines[3] and "success 30.0%" in lines[3] and "tok/s 100" in lines[3]
    assert lines[2].endswith(": iteration 2: 10 to 20 turns")
    (run,) = runs(storage)
    assert run.info.status == "FINISHED" and run.data.params == {
        "lr": "1e-06", "rollout.max_turns": "5", "event_at": "2"
    }  # fmt: skip
    assert run.data.tags["event.000002.curriculum"] == "10 to 20 turns"
    assert run.data.metrics["env_runners/success_rate"] == pytest.approx(0.3)
    assert run.data.metrics["nonfinite_metrics"] == 3
    assert paths(storage, run) == {"config.yaml", "learning_curve.png", "trajectories.html", "checkpoint"}
    assert "mlflow.parentRunId" not in run.data.tags
    folder = Path(results[0].path)
    assert run.data.tags["checkpoint"] == results[0].checkpoint.path  # type: ignore[union-attr]
    assert [row["training_iteration"] for row in read_history(folder)] == [1, 2, 3]
    assert str(storage) in run.info.artifact_uri


def test_several_trials_have_a_parent_and_failure_is_told(storage: Path) -> None:
    out = io.StringIO()
    second_fails = tune.sample_from(lambda config: 2 if config["lr"] == 2 else 0)
    fit(storage, out, {"lr": tune.grid_search([1, 2, 3]), "fail_at": second_fails}, limit_mb=0)
    found = runs(storage)
    (parent,) = [run for run in found if "mlflow.parentRunId" not in run.data.tags]
    children = {run.data.params["lr"]: run for run in found if run is not parent}
    assert {lr: run.info.status for lr, run in children.items()} == {"1": "FINISHED", "2": "FAILED", "3": "FINISHED"}
    assert {run.data.tags["mlflow.parentRunId"] for run in children.values()} == {parent.info.run_id}
    assert "checkpoint" in children["1"].data.tags and "checkpoint" not in paths(storage, children["1"])  # too large
    assert parent.info.status == "FAILED" and parent.info.run_name == "exp"
    assert "sweep" in paths(storage, parent) and "sweep" not in paths(storage, children["1"])
    assert "failed; the traceback is in" in out.getvalue()


def test_a_trial_that_recovers_goes_on_in_its_run_as_another_attempt(storage: Path) -> None:
    config = {"fail_at": 4, "marker": str(storage / "failed")}
    failure = tune.FailureConfig(max_failures=1)
    results = fit(storage, io.StringIO(), config, iterations=6, failure_config=failure)
    (run,) = runs(storage)
    assert run.info.status == "FINISHED"
    assert (run.data.tags["attempt"], run.data.tags["attempt_2.resumed_at"]) == ("2", "2")
    client = mlflow.MlflowClient(f"sqlite:///{storage}/mlflow.db")
    attempts = sorted((p.step, p.value) for p in client.get_metric_history(run.info.run_id, "attempt"))
    assert attempts == [(1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (5, 2), (6, 2)]
    assert [row["training_iteration"] for row in read_history(Path(results[0].path))] == [1, 2, 3, 4, 5, 6]


def test_ctrl_c_is_killed_and_a_restored_experiment_goes_on_in_the_same_run(storage: Path) -> None:
    class Interrupt(tune.Callback):
        def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
            if result["training_iteration"] == 2:
                signal.raise_signal(signal.SIGINT)

    fit(storage, io.StringIO(), {"lr": 1}, Interrupt(), iterations=4)
    (killed,) = runs(storage)
    assert killed.info.status == "KILLED"
    restored = tune.Tuner.restore(str(storage / "exp"), Learns, param_space={"lr": 1}, resume_unfinished=True)
    restored._local_tuner._run_config.callbacks = callbacks(io.StringIO())  # type: ignore[union-attr]
    restored.fit()
    (finished,) = runs(storage)
    assert finished.info.run_id == killed.info.run_id and finished.info.status == "FINISHED"
    assert finished.data.tags["attempt"] == "2"
