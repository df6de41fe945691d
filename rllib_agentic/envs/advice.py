"""What an environment's expert would do, or what chance may draw from, told with every observation."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from rllib_agentic.envs.baselines import HasExpert, HasRandomAction
from rllib_agentic.envs.env import Env, EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError

ADVICE = "expert_action"
DRAWN = "random_actions"
_DRAWS = 16


def advised(make: Callable[[], Env]) -> Callable[[], Env]:
    """Environments whose observations carry the expert's next action in ``info["expert_action"]``.

    The expert is asked where the environment runs, in its own thread and under its own time limit. A policy never
    sees ``info``.

    Raises:
        InputError: when an environment is made that has no expert.
    """
    return partial(_make, make)


def drawing(make: Callable[[], Env]) -> Callable[[], Env]:
    """Environments that tell some random actions where they list none.

    Where no actions are listed and the environment can draw one, ``info["random_actions"]`` are sixteen that it drew.
    They follow from the task, the environment's seed and the actions so far.
    """
    return partial(_make_drawing, make)


def _make_drawing(make: Callable[[], Env]) -> Env:
    env = make()
    return _Drawing(env, env) if isinstance(env, HasRandomAction) else env


def _make(make: Callable[[], Env]) -> Env:
    env = make()
    if not isinstance(env, HasExpert):
        env.close()
        raise InputError(f"{type(env).__name__} has no expert: it lacks the method expert_action() -> str")
    return _Advised(env, env)


class _Telling(ABC):
    """Adds to the ``info`` of every observation that another turn follows."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self.quick = bool(getattr(env, "quick", False))

    def schema(self) -> EnvSchema:
        return self._env.schema()

    def reset(self, split: str, index: int, seed: int) -> Observation:
        return self._telling(self._env.reset(split, index, seed))

    def step(self, action: str) -> StepResult:
        result = self._env.step(action)
        if result.terminated or result.truncated:
            return result
        return replace(result, observation=self._telling(result.observation))

    def close(self) -> None:
        self._env.close()

    def _telling(self, observation: Observation) -> Observation:
        return replace(observation, info={**observation.info, **self._told(observation)})

    @abstractmethod
    def _told(self, observation: Observation) -> dict[str, Any]:
        """What is added to an observation's ``info``."""


class _Advised(_Telling):
    def __init__(self, env: Env, expert: HasExpert) -> None:
        super().__init__(env)
        self._expert = expert

    def _told(self, observation: Observation) -> dict[str, Any]:
        return {ADVICE: self._expert.expert_action()}


class _Drawing(_Telling):
    def __init__(self, env: Env, source: HasRandomAction) -> None:
        super().__init__(env)
        self._source = source
        self._draw = random.Random()

    def reset(self, split: str, index: int, seed: int) -> Observation:
        self._draw.seed(repr((split, index, seed)))
        return super().reset(split, index, seed)

    def _told(self, observation: Observation) -> dict[str, Any]:
        if observation.actions:
            return {}
        return {DRAWN: [self._source.random_action(self._draw) for _ in range(_DRAWS)]}
