"""Scores without a model: the expert's and a random policy's, for the cards and for the checker."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from rllib_agentic.envs.env import Env, Observation, StepResult
from rllib_agentic.errors import InputError

Policy = Callable[[Env, Observation], str]


@runtime_checkable
class HasExpert(Protocol):
    """An environment that can say what a good agent would do now. Asking changes nothing."""

    def expert_action(self) -> str:
        """The next action of a plan that leads to success from the present state."""
        ...


@runtime_checkable
class HasRandomAction(Protocol):
    """An environment that does not list its actions, but can draw one that has the right form."""

    def random_action(self, draw: random.Random) -> str:
        """A well-formed action, drawn without regard to the task."""
        ...


class Score(NamedTuple):
    """Means over episodes."""

    success: float
    reward: float
    turns: float


def expert_policy(env: Env, observation: Observation) -> str:
    """Do what the environment's own expert says.

    Raises:
        InputError: the environment has none.
    """
    if not isinstance(env, HasExpert):
        raise InputError(f"{type(env).__name__} has no expert: it lacks the method expert_action() -> str")
    return env.expert_action()


def random_policy(seed: int) -> Policy:
    """A policy that draws from the admissible actions; where none are listed, the environment draws.

    Raises:
        InputError: when called on an observation that lists none, of an environment that cannot draw any.
    """
    draw = random.Random(seed)

    def choose(env: Env, observation: Observation) -> str:
        if not observation.actions:
            if isinstance(env, HasRandomAction):
                return env.random_action(draw)
            raise InputError(
                f"{type(env).__name__} lists no admissible actions, and has no random_action(draw) -> str: a random "
                f"policy cannot choose"
            )
        return draw.choice(observation.actions)

    return choose


def play(env: Env, policy: Policy, split: str, index: int, seed: int, max_turns: int) -> list[StepResult]:
    """One episode, to its end or to the interaction budget."""
    observation = env.reset(split, index, seed)
    results: list[StepResult] = []
    while len(results) < max_turns:
        results.append(env.step(policy(env, observation)))
        observation = results[-1].observation
        if results[-1].terminated or results[-1].truncated:
            break
    return results


def score(env: Env, policy: Policy, split: str, max_turns: int, episodes: int | None = None) -> Score:
    """Play the tasks of a split in order, each once, or as many episodes as asked for (then with new seeds).

    Args:
        env: left open.
        policy: chooses each action.
        split: whose tasks.
        max_turns: the interaction budget.
        episodes: how many; None plays every task once.
    """
    tasks = env.schema().splits[split]
    count = tasks if episodes is None else episodes
    played = [play(env, policy, split, episode % tasks, episode // tasks, max_turns) for episode in range(count)]
    return Score(
        success=sum(results[-1].success for results in played) / count,
        reward=sum(result.reward for results in played for result in results) / count,
        turns=sum(len(results) for results in played) / count,
    )
