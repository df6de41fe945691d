"""What an environment's expert would do, told with every observation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rllib_agentic.envs.baselines import HasExpert
from rllib_agentic.envs.env import Env, EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError

ADVICE = "expert_action"


def advised(make: Callable[[], Env]) -> Callable[[], Env]:
    """Environments whose observations carry the expert's next action in ``info["expert_action"]``.

    The expert is asked where the environment runs, in its own thread and under its own time limit. A policy never
    sees ``info``.

    Raises:
        InputError: when an environment is made that has no expert.
    """
    return partial(_make, make)


def _make(make: Callable[[], Env]) -> Env:
    env = make()
    if not isinstance(env, HasExpert):
        env.close()
        raise InputError(f"{type(env).__name__} has no expert: it lacks the method expert_action() -> str")
    return _Advised(env, env)


class _Advised:
    def __init__(self, env: Env, expert: HasExpert) -> None:
        self._env = env
        self._expert = expert
        self.quick = bool(getattr(env, "quick", False))

    def schema(self) -> EnvSchema:
        return self._env.schema()

    def reset(self, split: str, index: int, seed: int) -> Observation:
        return self._with_advice(self._env.reset(split, index, seed))

    def step(self, action: str) -> StepResult:
        result = self._env.step(action)
        if result.terminated or result.truncated:
            return result
        return replace(result, observation=self._with_advice(result.observation))

    def close(self) -> None:
        self._env.close()

    def _with_advice(self, observation: Observation) -> Observation:
        return replace(observation, info={**observation.info, ADVICE: self._expert.expert_action()})
