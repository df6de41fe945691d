"""Many episodes at once: groups of one task, drawn again where infrastructure failed."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from rllib_agentic.rollout.episode import PROMPT_TOO_LONG, TIMED_OUT, EpisodePlan, Rollout
from rllib_agentic.rollout.seeds import seed_of
from rllib_agentic.trajectory.trajectory import Task, Trajectory


def plan_group(
    task: Task,
    *,
    group_id: str,
    size: int,
    run_seed: int,
    iteration: int,
    max_turns: int,
    policy_version: int | None = None,
) -> list[EpisodePlan]:
    """The members of one group: one task, one environment seed, different sampling seeds."""
    return [
        EpisodePlan(
            task=task,
            group_id=group_id,
            member=member,
            seed=seed_of(run_seed, "sample", iteration, group_id, member),
            max_turns=max_turns,
            policy_version=policy_version,
        )
        for member in range(size)
    ]


async def play(
    rollout: Rollout, plans: Sequence[EpisodePlan], places: asyncio.Semaphore | None = None
) -> list[Trajectory]:
    """Play all plans, many at once, and return their trajectories in the order of the plans.

    Episodes do not wait for one another. An invalid episode is drawn again, up to ``max_attempts`` times in all, and
    its last attempt is returned; ``metrics["attempts"]`` says how many there were. One that took longer than
    ``episode_timeout_s`` is not: everyone would wait for it as long once more. Nor is one whose prompt is too long: it
    would be as long again.

    Args:
        rollout: what all episodes share.
        plans: the episodes.
        places: one for each episode in flight, where other calls share them; None makes ``max_concurrent_episodes``.

    Raises:
        Exception: the first bug or bad input of any episode; the others are cancelled and their sessions closed.
    """
    gate = places or asyncio.Semaphore(rollout.settings.max_concurrent_episodes)

    async def attempt(plan: EpisodePlan) -> Trajectory:
        async with gate:
            attempts, trajectory = 1, await rollout.run(plan)
            while (
                trajectory.invalid not in (None, TIMED_OUT, PROMPT_TOO_LONG)
                and attempts < rollout.settings.max_attempts
            ):
                attempts, trajectory = attempts + 1, await rollout.run(plan)
        return dataclasses.replace(trajectory, metrics={**trajectory.metrics, "attempts": attempts})

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(attempt(plan)) for plan in plans]
    except ExceptionGroup as several:
        raise several.exceptions[0] from several
    return [task.result() for task in tasks]
