"""Evaluation on held-out tasks: the same tasks and seeds every time, rates with intervals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from rllib_agentic.algorithms.dispatch import Dispatcher
from rllib_agentic.algorithms.episode_metrics import by_env, episode_metrics
from rllib_agentic.algorithms.sections import Sections
from rllib_agentic.envs.env import EnvSchema
from rllib_agentic.evaluation.statistics import success_interval
from rllib_agentic.rollout.group import plan_group
from rllib_agentic.rollout.seeds import seed_of
from rllib_agentic.trajectory.trajectory import Task, Trajectory


def held_out_tasks(schema: EnvSchema, split: str, wanted: int, seed: int) -> list[Task]:
    """A fixed sample of a split's tasks; all of them where fewer exist."""
    available = schema.splits[split]
    number = min(wanted, available)
    rng = np.random.Generator(np.random.Philox(seed_of(seed, "held_out", split)))
    chosen = np.sort(rng.permutation(available)[:number])
    return [Task(schema.name, split, int(i), seed_of(seed, "held_out_env", split, int(i))) for i in chosen]


def play_held_out(
    dispatcher: Dispatcher,
    sections: Sections,
    schema: EnvSchema,
    *,
    num_tasks: int,
    samples_per_task: int,
    seed: int,
    num_turns: int | None = None,
    prefix: str = "eval",
) -> list[Trajectory]:
    """Play held-out tasks, in the order of :func:`held_out_tasks`.

    Args:
        dispatcher: where episodes run.
        sections: the evaluation config's sections: split, temperature, limits.
        schema: of the environment.
        num_tasks: how many tasks.
        samples_per_task: episodes a task.
        seed: of the choice of tasks and of the sampling.
        num_turns: go on with further tasks until so many turns were played, instead of a number of tasks, or until
            the split has no more.
        prefix: of group ids, so that those of several environments differ.
    """
    split = sections.env_config.split
    tasks = held_out_tasks(schema, split, schema.splits[split] if num_turns else num_tasks, seed)
    played: list[Trajectory] = []
    while tasks:
        missing = None if num_turns is None else num_turns - sum(len(t.turns) for t in played)
        if missing is not None and missing <= 0:
            break
        # As many tasks as could give what is missing: the last round overshoots by one task at most.
        part = len(tasks) if missing is None else max(1, missing // (sections.rollout.max_turns * samples_per_task))
        plans = [
            plan_group(
                task,
                group_id=f"{prefix}:{task.split}:{task.index}",
                size=samples_per_task,
                run_seed=seed,
                iteration=0,
                max_turns=sections.rollout.max_turns,
            )
            for task in tasks[:part]
        ]
        tasks = tasks[part:]
        played += dispatcher.run(list(itertools.chain(*plans)), sections.rollout)[0]
    return played


def summarise(trajectories: list[Trajectory]) -> dict[str, Any]:
    """The metrics of :func:`episode_metrics` with the 95 % interval of the success rate, and ``num_tasks``.

    Several episodes of one task count as one cluster. With several environments, ``env`` has the same of each.
    """
    metrics: dict[str, Any] = episode_metrics(trajectories)
    if len(parts := by_env(trajectories)) > 1:
        metrics["env"] = {env: summarise(part) for env, part in parts.items()}
    valid = [t for t in trajectories if t.invalid is None]
    if not valid:
        return metrics
    by_task: dict[str, list[float]] = {}
    for t in valid:
        by_task.setdefault(t.group_id, []).append(float(t.success))
    low, high = success_interval(list(by_task.values()))
    return metrics | {"success_rate_low": low, "success_rate_high": high, "num_tasks": len(by_task)}
