"""One MLflow run, from its start to a true end, through resumes and outages."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from rllib_agentic.tracking.metrics import clean_name, scalars
from rllib_agentic.tracking.mlflow_server import MLflowServer
from rllib_agentic.tracking.open_runs import RunStatus, open_runs, status_of
from rllib_agentic.tracking.params import cut, flat_params, plain

logger = logging.getLogger(__name__)

_PARAMS_PER_CALL = 50  # MLflow takes 100, but no more than 1 MB in one request
_METRICS_PER_CALL = 500


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What the trial's folder remembers of its run, so that a resumed trial finds it."""

    run_id: str
    tracking_uri: str
    attempt: int


class MLflowRun:
    """One run. Every method returns at once and never raises for a fault of the service.

    **Resume.** The run's id is kept in ``run_file``. A run started again with the same file goes on in the same
    MLflow run. Parameters that changed become tags ``attempt_2.<name>``, since MLflow's parameters never change.

    **Attempts.** After a resume the steps between the checkpoint and the crash come a second time, and MLflow keeps
    both points. So that charts can be told apart, every result carries the metric ``attempt`` (1, 2, ...) at the
    same step and time as its other metrics, and the run has the tags ``attempt``, ``resumed_at`` (the step of the
    checkpoint) and ``attempt_2.resumed_at``. Within an attempt, a step is logged once: a step that goes back begins
    a new attempt.

    **End.** As a context manager the run ends as FINISHED, FAILED (exception) or KILLED (Ctrl-C, ``sys.exit``). A
    run that is still open on SIGTERM or at the interpreter's end is ended by :mod:`~.open_runs`.

    Args:
        server: where the run goes; several runs may share one.
        name: the run's name.
        run_file: remembers the run's id; None where the run is never resumed.
        parent: the run that this one belongs to; it must be started before.
        tags: of the run.

    Example::

        with MLflowRun(MLflowServer("sqlite:///mlflow.db", "maze"), "seed 0", run_file=Path("mlflow_run.json")) as run:
            run.start({"lr": 1e-6})
            run.log({"loss": 0.5}, step=1)
    """

    def __init__(
        self,
        server: MLflowServer,
        name: str,
        *,
        run_file: Path | None = None,
        parent: MLflowRun | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.attempt = 1
        self._server = server
        self._run_file = run_file
        self._parent = parent
        self._tags = dict(tags or {})
        self._run_id: str | None = None
        self._last_step: int | None = None
        self._resumed = False
        self._nonfinite: dict[str, int] = {}
        self._started = False
        self._ended = False

    @property
    def run_id(self) -> str | None:
        """MLflow's id; None until the service has answered."""
        return self._run_id

    def start(self, config: Mapping[str, Any]) -> None:
        """Open the run, or the one that ``run_file`` names, with its parameters and ``config.yaml``."""
        stored = read_run_file(self._run_file)
        if stored is not None and stored.tracking_uri == self._server.tracking_uri:
            self.attempt, self._resumed = stored.attempt + 1, True
        else:
            stored = None
        self._started = True
        open_runs.add(self)
        self._do("start of the run", lambda: self._open(stored), always=True)
        self._do("parameters", lambda: self._send_params(flat_params(config)), always=True)
        self.add_text("config.yaml", lambda: yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True))

    def log(self, result: Mapping[str, Any], step: int) -> None:
        """Log all finite numbers of one result; the others are counted in ``nonfinite_metrics``.

        Args:
            result: nested or flat (see :func:`~.metrics.scalars`).
            step: the training iteration. One that is not beyond the last begins a new attempt.
        """
        tags: dict[str, str] = {}
        if self._last_step is not None and step <= self._last_step:
            self.attempt += 1
            self._resumed = True
        if self._resumed:
            self._resumed = False
            at = str(step - 1)
            tags = {"attempt": str(self.attempt), "resumed_at": at, f"attempt_{self.attempt}.resumed_at": at}
            self._do("run file", self._remember)
        self._last_step = step
        values, nonfinite = scalars(result)
        self._count_nonfinite(nonfinite)
        values |= {"nonfinite_metrics": float(sum(self._nonfinite.values())), "attempt": float(self.attempt)}
        timestamp_ms = int(time.time() * 1000)
        self._do("results", lambda: self._send_metrics(values, step, timestamp_ms, tags))

    def add_artifact(self, path: Path | Callable[[], Path | None], folder: str | None = None) -> None:
        """Store a file, or a folder with all it holds, among the run's artifacts.

        Args:
            path: what to store, or a function that makes it, called in the background; None stores nothing.
            folder: where among the artifacts; their root where None.
        """

        def send() -> None:
            found = path() if callable(path) else path
            if found is not None:
                log = self._server.client().log_artifacts if found.is_dir() else self._server.client().log_artifact
                log(self._run_id, str(found), folder)

        self._do("artifact", send, always=True)

    def add_text(self, name: str, text: Callable[[], str | None]) -> None:
        """Store a text as an artifact; ``text`` is called in the background, and None stores nothing."""

        def send() -> None:
            content = text()
            if content is not None:
                self._server.client().log_text(self._run_id, content, name)

        self._do("artifact", send, always=True)

    def add_tag(self, name: str, value: str) -> None:
        """Set a tag of the run."""
        self._do(
            f"tag {name}",
            lambda: self._server.client().set_tag(self._run_id, clean_name(name), cut(value)),
            always=True,
        )

    def end(self, status: RunStatus) -> None:
        """End the run; a run ends once, and only if it was started."""
        if self._ended or not self._started:
            return
        self._ended = True
        open_runs.remove(self)
        end_time_ms = int(time.time() * 1000)
        self._do(
            "end of the run",
            lambda: self._server.client().set_terminated(self._run_id, status.value, end_time_ms),
            always=True,
        )

    def flush(self) -> None:
        """Wait until the service knows all that was said, at most ten seconds; for a process that is about to go."""
        self._server.flush(timeout_s=10)

    def __enter__(self) -> MLflowRun:
        """The run itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the run truthfully."""
        self.end(status_of(error))
        self.flush()

    def _do(self, label: str, work: Callable[[], None], *, always: bool = False) -> None:
        self._server.queue.add(label, work, always=always)

    def _count_nonfinite(self, names: list[str]) -> None:
        for name in names:
            if name not in self._nonfinite:
                logger.warning("metric %s is not finite: it is not sent, but counted in nonfinite_metrics", name)
            self._nonfinite[name] = self._nonfinite.get(name, 0) + 1

    # What follows runs on the queue's thread.

    def _open(self, stored: StoredRun | None) -> None:
        client = self._server.client()
        if self._run_id is None and stored is not None and _is_alive(client, stored.run_id):
            client.update_run(stored.run_id, status="RUNNING")
            self._run_id = stored.run_id
        if self._run_id is None:
            tags = dict(self._tags)
            if self._parent is not None and self._parent.run_id is not None:
                tags["mlflow.parentRunId"] = self._parent.run_id
            run = client.create_run(self._server.experiment_id(), run_name=self.name, tags=tags | {"attempt": "1"})
            self._run_id = run.info.run_id
        self._remember()

    def _remember(self) -> None:
        if self._run_file is not None and self._run_id is not None:
            stored = StoredRun(self._run_id, self._server.tracking_uri, self.attempt)
            self._run_file.parent.mkdir(parents=True, exist_ok=True)
            aside = self._run_file.with_name(f".{self._run_file.name}.{os.getpid()}.tmp")
            aside.write_text(json.dumps(asdict(stored)))
            os.replace(aside, self._run_file)

    def _send_params(self, params: dict[str, str]) -> None:
        from mlflow.entities import Param, RunTag

        client = self._server.client()
        there = client.get_run(self._run_id).data.params
        new = [Param(name, value) for name, value in params.items() if name not in there]
        changed = [
            RunTag(clean_name(f"attempt_{self.attempt}.{name}"), value)
            for name, value in params.items()
            if name in there and there[name] != value
        ]
        for start in range(0, len(new), _PARAMS_PER_CALL):
            client.log_batch(self._run_id, params=new[start : start + _PARAMS_PER_CALL])
        for start in range(0, len(changed), _PARAMS_PER_CALL):
            client.log_batch(self._run_id, tags=changed[start : start + _PARAMS_PER_CALL])

    def _send_metrics(self, values: dict[str, float], step: int, timestamp_ms: int, tags: dict[str, str]) -> None:
        from mlflow.entities import Metric, RunTag

        client = self._server.client()
        metrics = [Metric(clean_name(name), value, timestamp_ms, step) for name, value in values.items()]
        for start in range(0, len(metrics), _METRICS_PER_CALL):
            client.log_batch(self._run_id, metrics=metrics[start : start + _METRICS_PER_CALL])
        if tags:
            client.log_batch(self._run_id, tags=[RunTag(name, value) for name, value in tags.items()])


def read_run_file(run_file: Path | None) -> StoredRun | None:
    """What a run file remembers; None where there is none, or none that can be read."""
    if run_file is None or not run_file.is_file():
        return None
    try:
        return StoredRun(**json.loads(run_file.read_text()))
    except (ValueError, TypeError, OSError) as error:
        logger.warning("MLflow: %s cannot be read (%s): a new run is made", run_file, error)
        return None


def _is_alive(client: Any, run_id: str) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_run(run_id).info.lifecycle_stage == "active"
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return False
        raise
