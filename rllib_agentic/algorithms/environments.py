"""All environments of a run, while it uses them."""

from __future__ import annotations

from collections.abc import Mapping

from rllib_agentic.algorithms.environment import EnvConnection, Environment
from rllib_agentic.envs.client import service_figures
from rllib_agentic.envs.env import EnvSchema
from rllib_agentic.envs.settings import EnvSettings


class Environments:
    """Deploys what is to be deployed, one after the other; where one cannot work, those before it are stopped.

    Args:
        settings: by the registry's name.

    Raises:
        InputError: see :class:`~rllib_agentic.algorithms.environment.Environment`.
    """

    def __init__(self, settings: Mapping[str, EnvSettings]) -> None:
        self._environments: dict[str, Environment] = {}
        try:
            for name, part in settings.items():
                self._environments[name] = Environment(name, part)
        except BaseException:
            self.stop()
            raise

    @property
    def schemas(self) -> dict[str, EnvSchema]:
        """By name."""
        return {name: environment.schema for name, environment in self._environments.items()}

    @property
    def connections(self) -> dict[str, EnvConnection]:
        """How runners reach them, by name."""
        return {name: environment.connection for name, environment in self._environments.items()}

    def figures(self) -> dict[str, float]:
        """What the services did so far: sessions, steps, errors, times; by environment where there are several."""
        found = {name: service_figures(one.connection.settings) for name, one in self._environments.items()}
        if len(found) == 1:
            return next(iter(found.values()))
        return {f"{name}/{key}": value for name, figures in found.items() for key, value in figures.items()}

    def stop(self) -> None:
        """Stop what was deployed here."""
        for environment in self._environments.values():
            environment.stop()
