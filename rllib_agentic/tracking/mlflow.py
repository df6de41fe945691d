"""Tune's trials in MLflow: one run a trial, under one parent where there are several."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.fs
from ray.tune import Callback

from rllib_agentic.errors import InputError
from rllib_agentic.tracking.events import events_of
from rllib_agentic.tracking.history import read_history
from rllib_agentic.tracking.mlflow_run import MLflowRun
from rllib_agentic.tracking.mlflow_server import MLflowServer, checked_uri
from rllib_agentic.tracking.open_runs import RunStatus
from rllib_agentic.tracking.plot import plot_learning_curve
from rllib_agentic.tracking.samples import sample_page
from rllib_agentic.tracking.takeover import Takeovers
from rllib_agentic.tracking.trial_folder import trial_folder

RUN_FILE = "mlflow_run.json"
PLOT_FILE = "learning_curve.png"

_STATUS = {"TERMINATED": RunStatus.FINISHED, "ERROR": RunStatus.FAILED}


class AgenticMLflowCallback(Callback):
    """Records an experiment in MLflow without ever stopping or delaying it.

    Each result is one ``log_batch``, sent from a background thread. A trial that is resumed goes on in its run (see
    :class:`~.mlflow_run.MLflowRun`). At its end each run gets the learning curve, a page of sample trajectories, and
    the checkpoint: the files where they are small, else their path as the tag ``checkpoint``.

    Put it after :class:`~.history.HistoryCallback`, from whose file the learning curve is drawn.

    Args:
        tracking_uri: MLflow's address; where None, ``MLFLOW_TRACKING_URI``, else ``mlflow.db`` (SQLite) in the
            storage folder of the experiment, with the artifacts beside it.
        experiment: name of the MLflow experiment; where None, the Tune experiment's.
        tags: of every run.
        resolve: makes the full config of what a trial was given, for parameters and ``config.yaml``.
        checkpoint_limit_mb: the largest checkpoint that is copied to MLflow.
        samples: the most sample trajectories of the first and of the last iteration; 0 for none.
        flush_timeout_s: how long the end of the experiment waits for MLflow.
        interrupted: whether the user broke the run off; trials that then stop in good order are KILLED, not FINISHED.
        of_sweep: given all trials at the end, makes a folder whose files the parent run keeps; None keeps nothing.

    Raises:
        InputError: the address names a folder of files, which MLflow no longer takes.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        experiment: str | None = None,
        tags: Mapping[str, str] | None = None,
        resolve: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
        checkpoint_limit_mb: float = 200,
        samples: int = 4,
        flush_timeout_s: float = 30,
        interrupted: Callable[[], bool] = lambda: False,
        of_sweep: Callable[[Sequence[Any]], Path | None] | None = None,
    ) -> None:
        uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        self._uri = checked_uri(uri) if uri else None
        self._experiment = experiment
        self._tags = dict(tags or {})
        self._resolve = resolve
        self._checkpoint_limit_mb = checkpoint_limit_mb
        self._samples = samples
        self._flush_timeout_s = flush_timeout_s
        self._interrupted = interrupted
        self._of_sweep = of_sweep
        self._several = False
        self._server: MLflowServer | None = None
        self._parent: MLflowRun | None = None
        self._runs: dict[str, MLflowRun] = {}
        self._statuses: dict[str, RunStatus] = {}
        self._takeovers = Takeovers()

    @property
    def places(self) -> dict[str, str]:
        """Trial id to where its run is, for people: the store and MLflow's run id."""
        uri = self._server.tracking_uri if self._server else ""
        return {trial_id: f"{uri} run {run.run_id}" for trial_id, run in self._runs.items() if run.run_id}

    def setup(
        self, stop: Any = None, num_samples: int | None = None, total_num_samples: int | None = None, **info: Any
    ) -> None:
        """Tune begins: learn whether there will be several trials."""
        self._several = (total_num_samples or 1) > 1

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Open the trial's run, or the one that it had before a resume; say so where a population changed it."""
        change = self._takeovers.noticed(trial)
        if trial.trial_id in self._runs:  # started again within this process: the steps tell
            if change is not None:
                self._runs[trial.trial_id].add_tag(change.tag, change.message)
            return
        server = self._server or self._connect(trial)
        folder = trial_folder(trial)
        if self._parent is None and (self._several or len(trials) > 1):
            self._parent = MLflowRun(
                server, trial.experiment_dir_name, run_file=folder.parent / RUN_FILE, tags=self._tags
            )
            self._parent.start({})
        tags = self._tags | {"trial_id": trial.trial_id, "trial_folder": str(folder)}
        run = MLflowRun(server, str(trial), run_file=folder / RUN_FILE, parent=self._parent, tags=tags)
        self._runs[trial.trial_id] = run
        run.start(self._resolve(trial.config) if self._resolve else trial.config)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Log one result, and its events as tags ``event.<iteration>.<kind>``."""
        run = self._runs[trial.trial_id]
        run.log(result, step=result["training_iteration"])
        for event in events_of(result):
            run.add_tag(event.tag, event.message)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Close the runs of trials that ended, however Tune ended them."""
        for trial in trials:
            if trial.status in _STATUS and not trial.is_saving:
                broken_off = trial.status == "TERMINATED" and self._interrupted()
                self._close(trial, RunStatus.KILLED if broken_off else _STATUS[trial.status])

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """Close what is still open, truthfully, and wait for MLflow, but not for long."""
        crashed = isinstance(sys.exception(), Exception)  # Tune calls this while it handles the driver's exception
        interrupted = RunStatus.FAILED if crashed else RunStatus.KILLED
        for trial in trials:
            self._close(trial, interrupted)
        if self._parent is not None:
            if self._of_sweep is not None:
                of_sweep, ended = self._of_sweep, list(trials)
                self._parent.add_artifact(lambda: of_sweep(ended), "sweep")
            self._parent.end(_worst(self._statuses.values()))
        if self._server is not None:
            self._server.flush(self._flush_timeout_s)

    def _connect(self, trial: Any) -> MLflowServer:
        uri, artifacts = self._uri, None
        if uri is None:
            if not isinstance(trial.storage.storage_filesystem, pyarrow.fs.LocalFileSystem):
                raise InputError(
                    f"MLflow: the results go to {trial.storage.storage_fs_path}, where no database can be: set "
                    "tracking_uri (or MLFLOW_TRACKING_URI), for example http://host:5000"
                )
            storage = Path(trial.storage.storage_fs_path).absolute()
            uri, artifacts = f"sqlite:///{storage / 'mlflow.db'}", str(storage / "mlflow-artifacts")
        self._server = MLflowServer(uri, self._experiment or trial.experiment_dir_name, artifact_location=artifacts)
        return self._server

    def _close(self, trial: Any, status: RunStatus) -> None:
        run = self._runs.get(trial.trial_id)
        if run is None or trial.trial_id in self._statuses:
            return
        self._statuses[trial.trial_id] = status
        folder = trial_folder(trial)
        run.add_artifact(lambda: _plot(folder, str(trial)))
        if self._samples:
            run.add_text("trajectories.html", lambda: sample_page(folder, self._samples))
        if trial.checkpoint is not None:
            run.add_tag("checkpoint", trial.checkpoint.path)
            checkpoint = Path(trial.checkpoint.path)
            run.add_artifact(
                lambda: checkpoint if _size_mb(checkpoint) <= self._checkpoint_limit_mb else None, "checkpoint"
            )
        run.end(status)


def _plot(folder: Path, title: str) -> Path | None:
    history = read_history(folder)
    return plot_learning_curve(history, folder / PLOT_FILE, title=title) if history else None


def _size_mb(folder: Path) -> float:
    """Size of a local folder; infinite where it is not local."""
    if not folder.is_dir():
        return float("inf")
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def _worst(statuses: Any) -> RunStatus:
    found = set(statuses)
    return next((s for s in (RunStatus.KILLED, RunStatus.FAILED) if s in found), RunStatus.FINISHED)
