"""Trajectories of experts, of chance and of models, for the store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rllib_agentic.curriculum import TaskSampler
from rllib_agentic.envs.advice import ADVICE, DRAWN
from rllib_agentic.envs.env import Env, EnvSchema, Observation
from rllib_agentic.envs.local import LocalClient
from rllib_agentic.envs.session import EnvClient
from rllib_agentic.errors import InputError, did_you_mean
from rllib_agentic.offline.aside import run_aside
from rllib_agentic.rollout.episode import EpisodePlan, Rollout
from rllib_agentic.rollout.group import plan_group, play
from rllib_agentic.rollout.seeds import seed_of
from rllib_agentic.rollout.spoken import Speech
from rllib_agentic.trajectory import Trajectory

PART_SIZE = 256
"""Episodes that are played, and then stored, at a time."""


class Player(Protocol):
    """Plays planned episodes of one environment."""

    async def __call__(self, plans: Sequence[EpisodePlan], client: EnvClient) -> list[Trajectory]:
        """One trajectory a plan, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Spoken:
    """Plays what an expert says, or what chance draws: an admissible action, or one of the environment's draws.

    Attributes:
        speech: makes tokens of texts.
        expert: the environment's expert; else chance, with the episode's seed.
    """

    speech: Speech
    expert: bool

    async def __call__(self, plans: Sequence[EpisodePlan], client: EnvClient) -> list[Trajectory]:
        """See :class:`Player`."""
        gate = asyncio.Semaphore(self.speech.settings.max_concurrent_episodes)

        async def one(plan: EpisodePlan) -> Trajectory:
            async with gate:
                return await self.speech.play(plan, client, _advice if self.expert else _chance(plan.seed))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(plan)) for plan in plans]
        except ExceptionGroup as several:
            raise several.exceptions[0] from several
        return [task.result() for task in tasks]


@dataclass(frozen=True, slots=True)
class Sampled:
    """Plays what a model samples.

    Attributes:
        make_rollout: makes the shared parts of a rollout around a client.
    """

    make_rollout: Callable[[EnvClient], Rollout]

    async def __call__(self, plans: Sequence[EpisodePlan], client: EnvClient) -> list[Trajectory]:
        """See :class:`Player`."""
        return await play(self.make_rollout(client), plans)


def collect(
    player: Player,
    make: Callable[[], Env],
    schema: EnvSchema,
    keep: Callable[[list[Trajectory]], object],
    *,
    policy: str,
    split: str,
    episodes: int,
    group_size: int,
    max_turns: int,
    seed: int,
    call_timeout_s: float = 60.0,
) -> None:
    """Play episodes, :data:`PART_SIZE` at a time.

    Tasks are drawn as a training run with this seed draws them: every task of the split once before any comes again.

    Args:
        player: says what is said.
        make: makes the environment; for an expert one that :func:`~rllib_agentic.envs.advice.advised` made, for chance
            one that :func:`~rllib_agentic.envs.advice.drawing` made.
        schema: of the environment.
        keep: takes each part as soon as it was played.
        policy: noted in each trajectory's metrics, and in the names of the groups.
        split: whose tasks.
        episodes: how many.
        group_size: episodes a task.
        max_turns: the interaction budget.
        seed: of tasks and of chance.
        call_timeout_s: longest time for one call of the environment.

    Raises:
        InputError: no such split, or episodes that make no whole groups.
    """
    if split not in schema.splits:
        raise InputError(f"--split: {schema.name} has no split {split!r}. {did_you_mean(split, schema.splits)}")
    if group_size < 1:
        raise InputError(f"--group-size: expected at least 1, got {group_size}")
    if episodes < 1 or episodes % group_size:
        raise InputError(f"--episodes: expected a positive multiple of the group size {group_size}, got {episodes}")
    sampler = TaskSampler(env=schema.name, split=split, num_tasks=schema.splits[split], seed=seed)
    plans = [
        plan
        for number, task in enumerate(sampler.draw(episodes // group_size))
        for plan in plan_group(
            task, group_id=f"{policy}.{number}", size=group_size, run_seed=seed, iteration=0, max_turns=max_turns
        )
    ]
    part = max(PART_SIZE // group_size, 1) * group_size

    async def play_all() -> None:
        client = LocalClient(make, call_timeout_s)
        try:
            for start in range(0, len(plans), part):
                played = await player(plans[start : start + part], client)
                keep([replace(t, metrics={**t.metrics, "policy": policy}) for t in played])
        finally:
            await client.aclose()

    run_aside(play_all())


def _advice(observation: Observation) -> str:
    return str(observation.info[ADVICE])


def _chance(seed: int) -> Callable[[Observation], str]:
    draw = random.Random(seed_of(seed, "chance"))

    def say(observation: Observation) -> str:
        if observation.actions:
            return draw.choice(observation.actions)
        if DRAWN not in observation.info:
            raise InputError(
                "random policy: this environment lists no admissible actions to choose from, and has no "
                "random_action(draw) -> str"
            )
        return str(draw.choice(observation.info[DRAWN]))

    return say


def summary(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """Counts, rates and means of collected episodes, as one row of a table."""
    valid = [t for t in trajectories if t.invalid is None]
    count = max(len(valid), 1)
    return {
        "episodes": len(trajectories),
        "invalid": len(trajectories) - len(valid),
        "success_rate": sum(t.success for t in valid) / count,
        "return": sum(t.total_reward for t in valid) / count,
        "turns": sum(len(t.turns) for t in valid) / count,
        "tokens": sum(t.num_action_tokens for t in valid),
    }
