"""Several environments in one run: each gets its share of the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_agentic.curriculum.task_sampler import Groups, Sampler
from rllib_agentic.trajectory import Task


class TaskMixture:
    """Draws from the samplers of several environments, in proportion to their weights.

    The next task is always that of the environment that lags most behind its share, so after any number of draws each
    has its share to within one task. With one environment it is that environment's sampler.

    Args:
        samplers: by environment.
        weights: by environment, above 0; only their ratios matter.

    Example:
        >>> from rllib_agentic.curriculum.task_sampler import TaskSampler
        >>> made = {env: TaskSampler(env=env, split="train", num_tasks=9, seed=0) for env in ("maze", "shop")}
        >>> [task.env for task in TaskMixture(made, {"maze": 2.0, "shop": 1.0}).draw(6)]
        ['maze', 'shop', 'maze', 'maze', 'shop', 'maze']
    """

    def __init__(self, samplers: Mapping[str, Sampler], weights: Mapping[str, float]) -> None:
        self._samplers = dict(samplers)
        total = sum(weights[env] for env in self._samplers)
        self._shares = {env: weights[env] / total for env in self._samplers}
        self._drawn = dict.fromkeys(self._samplers, 0)

    def draw(self, count: int) -> list[Task]:
        """The next ``count`` tasks."""
        order = []
        for _ in range(count):
            after = sum(self._drawn.values()) + 1
            env = max(self._shares, key=lambda name: self._shares[name] * after - self._drawn[name])
            self._drawn[env] += 1
            order.append(env)
        drawn = {env: iter(sampler.draw(order.count(env))) for env, sampler in self._samplers.items() if env in order}
        return [next(drawn[env]) for env in order]

    def observe(self, groups: Groups) -> None:
        """Tell each environment's sampler what came of its groups."""
        for env, sampler in self._samplers.items():
            sampler.observe([group for group in groups if group and group[0].task.env == env])

    def metrics(self) -> dict[str, float]:
        """Each sampler's metrics; under the environment's name where there are several."""
        if len(self._samplers) == 1:
            return next(iter(self._samplers.values())).metrics()
        return {f"{env}/{name}": value for env, s in self._samplers.items() for name, value in s.metrics().items()}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"drawn": dict(self._drawn), "samplers": {env: s.state() for env, s in self._samplers.items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was taken."""
        self._drawn |= {env: int(n) for env, n in state["drawn"].items() if env in self._drawn}
        for env, sampler in self._samplers.items():
            if env in state["samplers"]:
                sampler.set_state(state["samplers"][env])
