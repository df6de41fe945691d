"""Evaluation on held-out tasks: the same tasks and seeds every time, rates with intervals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from rllib_agentic.algorithms.dispatch import Dispatcher
from rllib_agentic.algorithms.episode_metrics import episode_metrics
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


def evaluate_held_out(
    dispatcher: Dispatcher,
    sections: Sections,
    schema: EnvSchema,
    *,
    num_tasks: int,
    samples_per_task: int,
    seed: int,
) -> dict[str, Any]:
    """Play ``num_tasks`` tasks of the evaluation split and summarise them.

    Args:
        dispatcher: where episodes run.
        sections: the evaluation config's sections: split, temperature, limits.
        schema: of the environment.
        num_tasks: how many tasks.
        samples_per_task: episodes a task; intervals are clustered by task.
        seed: of the choice of tasks and of the sampling.

    Returns:
        the metrics of :func:`episode_metrics`, and ``success_rate_low``, ``success_rate_high`` (95 %), ``split``,
        ``splits_hash``, and ``category/<name>/success_rate`` where the environment names categories.
    """
    split = sections.env_config.split
    plans = [
        plan_group(
            task,
            group_id=f"eval:{task.split}:{task.index}",
            size=samples_per_task,
            run_seed=seed,
            iteration=0,
            max_turns=sections.rollout.max_turns,
        )
        for task in held_out_tasks(schema, split, num_tasks, seed)
    ]
    trajectories, _ = dispatcher.run(list(itertools.chain(*plans)), sections.rollout)
    return summarise(trajectories) | {"split": split, "splits_hash": schema.splits_hash}


def summarise(trajectories: list[Trajectory]) -> dict[str, Any]:
    """Metrics and intervals of evaluation episodes; several episodes of one task count as one cluster."""
    metrics: dict[str, Any] = episode_metrics(trajectories)
    valid = [t for t in trajectories if t.invalid is None]
    if not valid:
        return metrics
    by_task: dict[str, list[float]] = {}
    for t in valid:
        by_task.setdefault(t.group_id, []).append(float(t.success))
    low, high = success_interval(list(by_task.values()))
    return metrics | {"success_rate_low": low, "success_rate_high": high, "num_tasks": len(by_task)}
