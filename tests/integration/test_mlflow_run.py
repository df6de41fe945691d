"""A run in a real MLflow on SQLite: params, metrics, resume, attempts, status, outages, many at once."""

from __future__ import annotations

import math
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import yaml

from rllib_agentic.errors import InputError
from rllib_agentic.tracking.mlflow_run import MLflowRun
from rllib_agentic.tracking.mlflow_server import MLflowServer
from rllib_agentic.tracking.open_runs import RunStatus, open_runs


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow takes seconds to make its tables: once is enough."""
    file = tmp_path_factory.mktemp("mlflow") / "empty.db"
    mlflow.MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def uri(empty_database: Path, tmp_path: Path) -> str:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def server(uri: str, tmp_path: Path) -> Iterator[MLflowServer]:
    yield MLflowServer(uri, "exp", artifact_location=str(tmp_path / "artifacts"))
    assert not open_runs._open, "a test left a run open"


def stored(server: MLflowServer, run: MLflowRun) -> Any:
    return mlflow.MlflowClient(server.tracking_uri).get_run(run.run_id)


def history(server: MLflowServer, run: MLflowRun, metric: str) -> list[tuple[int, float]]:
    points = mlflow.MlflowClient(server.tracking_uri).get_metric_history(run.run_id, metric)
    return [(p.step, p.value) for p in sorted(points, key=lambda p: (p.timestamp, p.step))]


def artifact(server: MLflowServer, run: MLflowRun, name: str) -> str:
    return Path(mlflow.MlflowClient(server.tracking_uri).download_artifacts(run.run_id, name)).read_text()


def test_tk01_many_and_long_params_arrive_and_the_config_is_an_artifact(server: MLflowServer) -> None:
    config = {"a": "x" * 501, "b": "ж" * 6001, "c": {"d": {"e": [1, 2, 3]}}, "f": None, "lr": 1e-6, "": "", "t": "1e3"}
    config |= {f"p{i}": "y" * 5000 for i in range(250)}
    with MLflowRun(server, "r") as run:
        run.start(config)
    params = stored(server, run).data.params
    assert len(params) == len(config) and {"a", "b", "c.d.e", "f"} <= set(params)
    assert params["b"].endswith("[cut: 6001 characters, all of them in config.yaml]") and len(params["b"]) == 6000
    assert params["p249"] == "y" * 5000 and params["lr"] == "1e-06"
    assert yaml.safe_load(artifact(server, run, "config.yaml")) == config


def test_tk02_every_name_is_logged(server: MLflowServer) -> None:
    names = ["val/AR@100", "reward[0]", "p(x)", "a//b", "/a", "k" * 251, "", "reward(0)"]
    with MLflowRun(server, "r") as run:
        run.start(dict.fromkeys(names, 1))
        run.log({name: i for i, name in enumerate(names, 10)}, step=1)
    values = sorted(v for v in stored(server, run).data.metrics.values() if v >= 10)
    assert values == [10 + i for i in range(len(names))]
    assert len(stored(server, run).data.params) == len(names)


def test_tk04_non_finite_values_are_counted_not_sent(server: MLflowServer, caplog: pytest.LogCaptureFixture) -> None:
    values = [math.nan, math.inf, -math.inf, 1.0, None, np.float32(1.5)]
    with MLflowRun(server, "r") as run:
        run.start({})
        run.log({f"m{i}": value for i, value in enumerate(values)}, step=1)
        run.log({"m0": math.nan}, step=2)
    assert stored(server, run).data.metrics == {"m3": 1.0, "m5": 1.5, "nonfinite_metrics": 4.0, "attempt": 1.0}
    assert history(server, run, "nonfinite_metrics") == [(1, 3.0), (2, 4.0)]
    assert caplog.text.count("m0 is not finite") == 1


def test_tk05_a_resumed_run_is_the_same_run_and_changed_params_are_tags(server: MLflowServer, tmp_path: Path) -> None:
    file = tmp_path / "trial" / "mlflow_run.json"
    with MLflowRun(server, "r", run_file=file) as first:
        first.start({"lr": 1e-06, "start_step": 0, "fn": lambda: 0})
    with MLflowRun(server, "r", run_file=file) as second:
        second.start({"lr": 1e-06, "start_step": 50, "fn": lambda: 0, "added": 1})
        assert second.attempt == 2
    assert second.run_id == first.run_id
    data = stored(server, second).data
    assert data.params["lr"] == "1e-06" and data.params["start_step"] == "0" and data.params["added"] == "1"
    assert data.tags["attempt_2.start_step"] == "50"
    assert "0x" not in data.params["fn"] and not any("fn" in tag for tag in data.tags)


def test_a_run_that_was_deleted_or_lives_elsewhere_is_made_anew(server: MLflowServer, tmp_path: Path) -> None:
    file = tmp_path / "mlflow_run.json"
    with MLflowRun(server, "r", run_file=file) as first:
        first.start({})
    mlflow.MlflowClient(server.tracking_uri).delete_run(first.run_id)
    with MLflowRun(server, "r", run_file=file) as second:
        second.start({})
    assert second.run_id not in (None, first.run_id)
    file.write_text("{ cut")
    with MLflowRun(server, "r", run_file=file) as third:
        third.start({})
    assert third.run_id not in (None, second.run_id) and third.attempt == 1


def test_tk06_repeated_steps_are_told_apart_by_their_attempt(server: MLflowServer, tmp_path: Path) -> None:
    file = tmp_path / "mlflow_run.json"
    first = MLflowRun(server, "r", run_file=file)
    first.start({})
    for step in range(38, 48):
        first.log({"loss": step}, step=step)
    server.flush(30)
    open_runs.remove(first)  # the process is killed: nobody ends the run
    with MLflowRun(server, "r", run_file=file) as second:
        second.start({})
        for step in range(41, 51):
            second.log({"loss": -step}, step=step)
    client = mlflow.MlflowClient(server.tracking_uri)
    attempt_at = {(p.step, p.timestamp): p.value for p in client.get_metric_history(second.run_id, "attempt")}
    points = [(p.step, attempt_at[p.step, p.timestamp]) for p in client.get_metric_history(second.run_id, "loss")]
    assert len(points) == len(set(points)) == 20
    assert sum(attempt == 2 for _, attempt in points) == 10
    tags = stored(server, second).data.tags
    assert (tags["attempt"], tags["resumed_at"], tags["attempt_2.resumed_at"]) == ("2", "40", "40")


def test_a_step_that_goes_back_within_a_process_begins_a_new_attempt(server: MLflowServer, tmp_path: Path) -> None:
    file = tmp_path / "mlflow_run.json"
    with MLflowRun(server, "r", run_file=file) as run:
        run.start({})
        for step in (1, 2, 3, 2, 3):
            run.log({}, step=step)
    assert sorted(history(server, run, "attempt")) == [(1, 1.0), (2, 1.0), (2, 2.0), (3, 1.0), (3, 2.0)]
    assert stored(server, run).data.tags["attempt_2.resumed_at"] == "1" and '"attempt": 2' in file.read_text()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "FINISHED"),
        (RuntimeError("boom"), "FAILED"),
        (KeyboardInterrupt(), "KILLED"),
        (SystemExit(143), "KILLED"),
        (SystemExit(0), "FINISHED"),
    ],
)
def test_tk07_status_is_true(server: MLflowServer, error: BaseException | None, status: str) -> None:
    run = MLflowRun(server, "r")
    try:
        with run:
            run.start({})
            if error is not None:
                raise error
    except BaseException as raised:
        assert raised is error
    assert stored(server, run).info.status == status and stored(server, run).info.end_time is not None


SCRIPT = """
import os, signal, sys
from rllib_agentic.tracking.mlflow_run import MLflowRun
from rllib_agentic.tracking.mlflow_server import MLflowServer
from rllib_agentic.tracking.open_runs import RunStatus
server = MLflowServer(sys.argv[1], "exp")
run = MLflowRun(server, "r")
run.start({})
server.flush(60)
print(run.run_id, flush=True)
"""


def test_tk07_sigterm_with_an_open_run_leaves_it_killed(uri: str) -> None:
    command = [sys.executable, "-c", SCRIPT + "os.kill(os.getpid(), signal.SIGTERM)", uri]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert process.returncode == -signal.SIGTERM, process.stderr
    assert mlflow.MlflowClient(uri).get_run(process.stdout.split()[0]).info.status == "KILLED"


def test_tk08_concurrent_children_share_a_parent_and_nothing_else(server: MLflowServer) -> None:
    parent = MLflowRun(server, "sweep")
    parent.start({})

    def child(lr: int) -> MLflowRun:
        run = MLflowRun(server, f"trial {lr}", parent=parent)
        run.start({"lr": lr})
        for step in range(1, 4):
            run.log({"loss": lr}, step=step)
        run.end(RunStatus.FINISHED)
        return run

    with ThreadPoolExecutor(4) as pool:
        children = list(pool.map(child, range(4)))
    parent.end(RunStatus.FINISHED)
    parent.flush()
    runs = mlflow.MlflowClient(server.tracking_uri).search_runs([server.experiment_id()])
    assert len(runs) == 5
    for lr, run in enumerate(children):
        data = stored(server, run).data
        assert data.params == {"lr": str(lr)} and data.tags["mlflow.parentRunId"] == parent.run_id
        assert history(server, run, "loss") == [(1, lr), (2, lr), (3, lr)]


def test_tk08_two_processes_can_make_one_store(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    command = [sys.executable, "-c", SCRIPT + "run.end(RunStatus.FINISHED); run.flush()", uri]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ids = {process.communicate(timeout=300)[0].split()[0] for process in processes}
    client = mlflow.MlflowClient(uri)
    (experiment,) = client.search_experiments(filter_string="name = 'exp'")
    assert {run.info.run_id for run in client.search_runs([experiment.experiment_id])} == ids and len(ids) == 2


def test_tk14_training_goes_on_without_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    server = MLflowServer(f"http://127.0.0.1:{port}", "exp", capacity=3)
    run = MLflowRun(server, "r", run_file=tmp_path / "mlflow_run.json")
    run.start({"lr": 1})
    for step in range(1, 11):
        run.log({"loss": 0.5}, step=step)
    run.end(RunStatus.FINISHED)
    gap = server.flush(0.5)
    assert gap is not None and gap.lost["results"] == 10 and gap.lost["end of the run"] == 1
    assert f"MLflow at http://127.0.0.1:{port} lacks part of this run: " in caplog.text
    assert not (tmp_path / "mlflow_run.json").exists()


def test_tk14_what_was_logged_during_an_outage_arrives_later(server: MLflowServer, caplog: Any) -> None:
    """The database is away from step 3 to step 6."""
    database = Path(server.tracking_uri.removeprefix("sqlite:///"))
    run = MLflowRun(server, "r")
    run.start({})
    real: Callable[..., None] | None = None
    for step in range(1, 11):
        if step == 3:
            server.flush(30)
            real = server.client().log_batch

            def down(*_: Any, **__: Any) -> None:
                raise ConnectionError("server away")

            server.client().log_batch = down  # type: ignore[method-assign]
        if step == 7:
            server.client().log_batch = real  # type: ignore[method-assign, assignment]
        run.log({"loss": step}, step=step)
    run.end(RunStatus.FINISHED)
    run.flush()
    assert database.exists() and history(server, run, "loss") == [(step, step) for step in range(1, 11)]


def test_artifacts_of_any_kind_and_a_missing_one_hurts_nobody(server: MLflowServer, tmp_path: Path) -> None:
    folder = tmp_path / "ckpt" / "deep"
    folder.mkdir(parents=True)
    (folder / "weights.bin").write_bytes(b"w")
    with MLflowRun(server, "r") as run:
        run.start({})
        run.add_artifact(tmp_path / "absent.png")
        run.add_artifact(tmp_path / "ckpt", "checkpoint")
        run.add_text("samples/a.txt", lambda: "текст")
        run.add_tag("checkpoint path", "x" * 9000)
    assert artifact(server, run, "checkpoint/deep/weights.bin") == "w"
    assert artifact(server, run, "samples/a.txt") == "текст"
    assert len(stored(server, run).data.tags["checkpoint path"]) == 6000
    assert stored(server, run).info.status == "FINISHED"


def test_a_store_of_files_is_refused_at_the_start() -> None:
    for uri in ("file:///tmp/mlruns", "mlruns", "/tmp/mlruns"):
        with pytest.raises(InputError, match="sqlite:///"):
            MLflowServer(uri, "exp")
