"""The YAML section ``environments``: what each environment of a run contributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from rllib_agentic.components import Settings, parse_settings
from rllib_agentic.curriculum import CURRICULA
from rllib_agentic.envs.settings import EnvSettings
from rllib_agentic.errors import InputError


class EnvironmentShare(Settings):
    """One environment of several.

    Attributes:
        weight: its part of the tasks; only the ratio to the others' matters.
        env_config: where it runs and with which arguments. The run's own ``env`` has its in ``config.env_config``.
        curriculum: its interaction budgets, as the section ``curriculum``; that section where None.
    """

    weight: float = Field(default=1.0, gt=0)
    env_config: EnvSettings | None = None
    curriculum: dict[str, Any] | str | None = None


def read_shares(value: Any, where: str) -> dict[str, EnvironmentShare]:
    """Type the section.

    Raises:
        InputError: what is wrong, a line each.
    """
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: expected a mapping from an environment's name to its share, got {value!r}")
    faults, shares = [], {}
    for name, spec in value.items():
        try:
            shares[str(name)] = share = parse_settings(EnvironmentShare, spec or {}, f"{where}.{name}")
            if share.curriculum is not None:
                CURRICULA.parse(share.curriculum, f"{where}.{name}.curriculum")
        except InputError as error:
            faults.append(str(error))
    if faults:
        raise InputError("\n".join(faults))
    return shares


def share_faults(shares: Mapping[str, EnvironmentShare], main: Any) -> list[str]:
    """What only the run as a whole knows."""
    if not shares:
        return []
    faults = []
    if main not in shares:
        faults.append(f"config.environments: config.env {main!r} is not among them; give it a share, if only {{}}")
    elif shares[main].env_config is not None:
        faults.append(f"config.environments.{main}.env_config: stands in config.env_config, since it is config.env")
    return faults
