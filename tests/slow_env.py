"""The bandit with an environment that takes its time."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from rllib_agentic.envs.env import EnvSchema, StepResult
from serve_envs.bandit.env import Bandit


class SlowBandit(Bandit):
    """Every step lasts ``latency_s``."""

    quick = False

    def __init__(self, latency_s: float = 0.02, **args: Any) -> None:
        super().__init__(**args)
        self._latency_s = latency_s

    def schema(self) -> EnvSchema:
        return dataclasses.replace(super().schema(), name="slow_bandit")

    def step(self, action: str) -> StepResult:
        time.sleep(self._latency_s)
        return super().step(action)
