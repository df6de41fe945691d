"""An environment for Serve's own commands and files: ``serve run serve_envs.builder:app env=frozenlake``."""

# Annotations are not postponed here: Serve makes the argument of `app` from its class, and does not resolve a string.
import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator
from ray.serve import Application

from rllib_agentic.components import Settings
from rllib_agentic.envs.registry import env_factory
from rllib_agentic.envs.settings import EnvSettings
from serve_envs.app import build_app


class ServeArguments(Settings):
    """The arguments of :func:`app`.

    Attributes:
        env: the registry's name.
        args: keyword arguments of the environment's constructor, as a mapping or, on a command line, as JSON.
        num_replicas: worker processes.
        max_sessions: slots a worker.
        direct: workers also listen on a port of their own, see :class:`EnvSettings`.
        ttl_s: a session without a request for this long is closed.
        call_timeout_s: longest time for one reset or step.
        cpus_per_replica: what a worker reserves.
    """

    env: str
    args: Mapping[str, Any] = Field(default_factory=dict)
    num_replicas: int = Field(default=1, ge=1)
    max_sessions: int = Field(default=256, ge=1)
    direct: bool = True
    ttl_s: float = Field(default=600.0, gt=0)
    call_timeout_s: float = Field(default=60.0, gt=0)
    cpus_per_replica: float = Field(default=1.0, ge=0)

    @field_validator("args", mode="before")
    @classmethod
    def _from_json(cls, given: Any) -> Any:
        return json.loads(given) if isinstance(given, str) else given


def app(arguments: ServeArguments) -> Application:
    """The application of one environment, with its HTTP gateway; runs until Serve is told to stop it.

    Raises:
        InputError: an unknown environment or wrong arguments.
    """
    settings = EnvSettings(**arguments.model_dump(exclude={"env", "args"}))
    return build_app(env_factory(arguments.env, **arguments.args), settings)
