"""``env_config`` in YAML: where the environment runs, and with which arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from rllib_agentic.components import Settings
from rllib_agentic.envs.dialects import DIALECTS
from rllib_agentic.envs.foreign import ForeignSettings


class EnvSettings(Settings):
    """Where an environment runs, its limits, and its arguments.

    Attributes:
        backend: ``serve`` (deployed on Ray Serve by the algorithm), ``local`` (in the runner's process) or ``url``
            (somebody's service; chosen by itself where ``url`` is given).
        url: base URL of a running service, for example ``http://10.0.0.7:8000/frozenlake``.
        dialect: what the service at the URL speaks: ``rllib`` (our own), ``agentgym`` or ``openenv``, the latter two
            with their settings, for example ``{type: agentgym, style: textcraft, tasks: {train: [0, 374]}}``.
        app: name of a Serve application that runs already; the algorithm fills it in when it deploys.
        split: the split that training draws its tasks from.
        args: keyword arguments of the environment's constructor.
        num_replicas: worker processes.
        max_sessions: slots a worker.
        direct: workers also listen on a port of their own, on their node's address, and clients that can reach it send
            their batches straight there; false leaves all requests to Serve's proxy and router.
        ttl_s: a session without a request for this long is closed.
        call_timeout_s: longest time for one reset or step.
        cpus_per_replica: what a worker reserves; 0 lets it start beside a trial that reserved every CPU.
        max_retries: tries after the first, for calls lost on their way and for resets that fail.
        max_rebuilds: how often one session may be rebuilt by replay after its replica died; 0 switches that off.
    """

    backend: Literal["serve", "local", "url"] = "serve"
    url: str | None = None
    dialect: str | Mapping[str, Any] = "rllib"
    app: str | None = None
    split: str = "train"
    args: Mapping[str, Any] = Field(default_factory=dict)
    num_replicas: int = Field(default=1, ge=1)
    max_sessions: int = Field(default=256, ge=1)
    direct: bool = True
    ttl_s: float = Field(default=600.0, gt=0)
    call_timeout_s: float = Field(default=60.0, gt=0)
    cpus_per_replica: float = Field(default=0.0, ge=0)
    max_retries: int = Field(default=3, ge=0)
    max_rebuilds: int = Field(default=2, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _url_chooses_its_backend(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("url") is not None and "backend" not in given:
            return {**given, "backend": "url"}
        return given

    @model_validator(mode="after")
    def _backend_fits(self) -> EnvSettings:
        if self.backend == "url" and self.url is None:
            raise ValueError("backend 'url' needs the key 'url', for example http://10.0.0.7:8000/frozenlake")
        if self.backend != "url" and self.url is not None:
            raise ValueError(f"'url' is given, but backend is {self.backend!r}; leave one of them out")
        if self.backend == "url" and self.args:
            raise ValueError("'args' belong to who runs the service; an environment at a URL takes none")
        if self.backend != "serve" and self.app is not None:
            raise ValueError(f"'app' names a Serve application, but backend is {self.backend!r}")
        if self.dialect != "rllib" and self.backend != "url":
            raise ValueError(f"'dialect' is for a service at a URL, but backend is {self.backend!r}")
        self.foreign()
        return self

    def foreign(self) -> ForeignSettings | None:
        """The foreign dialect, with its settings; None for our own.

        Raises:
            InputError: there is no such dialect, or its settings cannot be right.
        """
        return None if self.dialect == "rllib" else DIALECTS.parse(self.dialect, "dialect")
