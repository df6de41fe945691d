"""The environment of a run: deployed where that is asked for, described, and reachable from every runner."""

from __future__ import annotations

from dataclasses import dataclass

from rllib_agentic.envs.client import check_env_config, make_client
from rllib_agentic.envs.env import EnvSchema
from rllib_agentic.envs.session import EnvClient
from rllib_agentic.envs.settings import EnvSettings


@dataclass(frozen=True, slots=True)
class EnvConnection:
    """How a runner, anywhere in the cluster, reaches an environment."""

    env: str
    settings: EnvSettings

    def open(self) -> EnvClient:
        """A client of its own; nothing is contacted before its first call."""
        return make_client(self.env, self.settings)


class Environment:
    """An environment while a run uses it.

    Args:
        env: the registry's name.
        settings: backend and arguments. With backend ``serve`` and no ``app`` it is deployed here, and stopped by
            :meth:`stop`.

    Raises:
        InputError: it cannot work: unknown, wrong arguments, no such split, or nothing answers at the URL.
    """

    def __init__(self, env: str, settings: EnvSettings) -> None:
        self.schema: EnvSchema = check_env_config(env, settings)
        self._deployed: str | None = None
        if settings.backend == "serve" and settings.app is None:
            from serve_envs.app import deploy

            self._deployed = deploy(env, settings)
            settings = settings.model_copy(update={"app": self._deployed})
        self.connection = EnvConnection(env, settings)

    def stop(self) -> None:
        """Stop what was deployed here; whatever was running before goes on."""
        if self._deployed is not None:
            from serve_envs.app import undeploy

            undeploy(self._deployed)
            self._deployed = None
