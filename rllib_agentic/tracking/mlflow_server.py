"""Where MLflow runs go: the store, the experiment, and the queue through which everything is sent."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rllib_agentic.errors import InputError
from rllib_agentic.tracking.best_effort import BestEffortQueue, Gap
from rllib_agentic.tracking.sqlite_store import make_database

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

_HTTP_DEFAULTS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "20", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}


class MLflowServer:
    """One MLflow experiment, reached from the background: no call here waits for the service.

    Nothing is imported or connected until the first piece of work runs. MLflow's own retries, which can take many
    minutes, are cut to one (unless ``MLFLOW_HTTP_REQUEST_MAX_RETRIES`` or ``..._TIMEOUT`` say otherwise): the queue
    tries again by itself.

    Args:
        tracking_uri: for example ``sqlite:////data/mlflow.db`` or ``https://mlflow.example.org``.
        experiment: the experiment's name; made where it does not exist.
        artifact_location: where artifacts of a new experiment go; None leaves it to the service.
        capacity: the most pieces of work (one a training result) that wait while the service is down.

    Raises:
        InputError: the URI names a folder of files, which MLflow no longer takes.
    """

    def __init__(
        self, tracking_uri: str, experiment: str, *, artifact_location: str | None = None, capacity: int = 1000
    ) -> None:
        self.tracking_uri = checked_uri(tracking_uri)
        self.experiment = experiment
        self.queue = BestEffortQueue("MLflow", _is_hopeless, capacity=capacity)
        self._artifact_location = artifact_location
        self._client: MlflowClient | None = None
        self._experiment_id: str | None = None
        self._told: Gap | None = None

    def client(self) -> MlflowClient:
        """The client; imports MLflow (seconds) and connects, so call it from the queue's work only."""
        if self._client is None:
            for name, value in _HTTP_DEFAULTS.items():
                os.environ.setdefault(name, value)
            from mlflow import MlflowClient

            for chatty in ("alembic", "mlflow.store.db.utils"):
                logging.getLogger(chatty).setLevel(logging.WARNING)
            if self.tracking_uri.startswith("sqlite:///"):
                make_database(Path(self.tracking_uri.removeprefix("sqlite:///")))
            self._client = MlflowClient(self.tracking_uri)
        return self._client

    def experiment_id(self) -> str:
        """The experiment's id, made where there is none; from the queue's work only."""
        if self._experiment_id is None:
            self._experiment_id = self._find_or_make()
        return self._experiment_id

    def flush(self, timeout_s: float) -> Gap | None:
        """Wait at most ``timeout_s`` until everything was sent; what was lost is warned about and returned."""
        gap = self.queue.flush(timeout_s)
        if gap is not None and gap != self._told:
            logger.warning("MLflow at %s lacks part of this run: %s", self.tracking_uri, gap)
        self._told = gap
        return gap

    def _find_or_make(self) -> str:
        from mlflow.exceptions import MlflowException

        client = self.client()
        found = client.get_experiment_by_name(self.experiment)
        if found is not None and found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
        if found is not None:
            return found.experiment_id
        try:
            return client.create_experiment(self.experiment, artifact_location=self._artifact_location)
        except MlflowException:
            made_meanwhile = client.get_experiment_by_name(self.experiment)  # by another process
            if made_meanwhile is None:
                raise
            return made_meanwhile.experiment_id


def checked_uri(uri: str) -> str:
    """The URI, or an error where MLflow would refuse it only after training has begun.

    Example:
        >>> checked_uri("sqlite:///mlflow.db")
        'sqlite:///mlflow.db'
    """
    scheme = uri.partition(":")[0] if "://" in uri else ""
    if scheme in ("", "file") and uri not in ("databricks", "uc") and not os.environ.get("MLFLOW_ALLOW_FILE_STORE"):
        raise InputError(
            f"MLflow: the tracking URI {uri!r} names a folder of files, which MLflow 3 refuses. "
            "Use a database, for example sqlite:////data/mlflow.db, or a server, http://host:5000"
        )
    return uri


def _is_hopeless(error: Exception) -> bool:
    """Whether sending the same again cannot work: a request that is wrong in itself, or a bug of ours."""
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        return 400 <= error.get_http_status_code() < 500 and error.get_http_status_code() not in (408, 429)
    if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)):
        return True
    return not isinstance(error, OSError)  # requests' errors are OSErrors
