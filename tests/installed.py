"""Environments that need more than the base install: skipped with the command that installs it, a failure in CI."""

from __future__ import annotations

import os

import pytest

from rllib_agentic.envs.registry import env_entries


def require_env(name: str) -> None:
    """Skip the test, or the module, where an environment cannot run here; CI installs everything, so it fails there."""
    entry = next(entry for entry in env_entries() if entry.name == name)
    if commands := entry.missing():
        told = f"{name} is not installed here; run: {' && '.join(commands)}"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told, allow_module_level=True)
