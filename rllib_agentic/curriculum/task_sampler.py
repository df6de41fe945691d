"""Which tasks an iteration plays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rllib_agentic.errors import InputError
from rllib_agentic.rollout.seeds import seed_of
from rllib_agentic.trajectory import Task, Trajectory

Groups = Sequence[Sequence[Trajectory]]


class Sampler(Protocol):
    """Draws the tasks of one environment. All memory is in the state, so that a resumed run goes on exactly."""

    def draw(self, count: int) -> list[Task]:
        """The next tasks."""
        ...

    def observe(self, groups: Groups) -> None:
        """Learn what came of one iteration's groups; called once an iteration."""
        ...

    def metrics(self) -> dict[str, float]:
        """Numbers about what was drawn."""
        ...

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: plain numbers, lists and mappings."""
        ...

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was taken."""
        ...


class TaskSampler:
    """Draws the tasks of one split uniformly, without replacement inside an epoch; one task is one group.

    The tasks form one endless stream: each epoch is a permutation of the split that follows from the seed and the
    epoch's number, and each draw takes the next ones, across the border of an epoch where need be. So the n-th task of
    a run depends on the seed and n alone; the state is that one number, and a resumed run goes on exactly. Without
    extra draws, iteration i (from 1) plays tasks ``(i - 1) * count`` to ``i * count - 1`` of the stream.

    ``Task.seed`` is the environment's: one for all members of a group, a new one when the task comes back in the next
    epoch.

    Args:
        env: the environment's name.
        split: one of its splits.
        num_tasks: how many tasks the split has.
        seed: the run's seed.

    Raises:
        InputError: the split is empty.

    Example:
        >>> sampler = TaskSampler(env="bandit", split="train", num_tasks=3, seed=0)
        >>> epoch = [task.index for task in sampler.draw(3)]
        >>> sorted(epoch), sampler.state()
        ([0, 1, 2], {'drawn': 3})
    """

    def __init__(self, *, env: str, split: str, num_tasks: int, seed: int) -> None:
        check_tasks(env, split, num_tasks)
        self._env = env
        self._split = split
        self._num_tasks = num_tasks
        self._seed = seed
        self._drawn = 0
        self._order: tuple[int, list[int]] = (-1, [])

    def draw(self, count: int) -> list[Task]:
        """The next ``count`` tasks."""
        tasks = [self._task(n) for n in range(self._drawn, self._drawn + count)]
        self._drawn += count
        return tasks

    def observe(self, groups: Groups) -> None:
        """Nothing: the stream does not depend on what happened."""

    def metrics(self) -> dict[str, float]:
        """``epochs``: how often the split was played, in part or whole."""
        return {"epochs": self._drawn / self._num_tasks}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"drawn": self._drawn}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was taken."""
        self._drawn = int(state["drawn"])

    def _task(self, number: int) -> Task:
        epoch, place = divmod(number, self._num_tasks)
        if self._order[0] != epoch:
            seed = seed_of(self._seed, "tasks", self._env, self._split, epoch)
            order = np.random.Generator(np.random.Philox(seed)).permutation(self._num_tasks)
            self._order = (epoch, order.tolist())
        index = self._order[1][place]
        return Task(self._env, self._split, index, seed_of(self._seed, "env", self._env, self._split, epoch, index))


def check_tasks(env: str, split: str, num_tasks: int) -> None:
    """Refuse a split without tasks.

    Raises:
        InputError: it is empty.
    """
    if num_tasks < 1:
        raise InputError(f"tasks: the split {split!r} of {env!r} has {num_tasks} tasks; expected at least 1")
