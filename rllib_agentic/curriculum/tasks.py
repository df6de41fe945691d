"""How tasks are chosen: the YAML section ``tasks``."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pydantic import Field

from rllib_agentic.components import Family, Settings
from rllib_agentic.curriculum.by_success import SuccessSampler
from rllib_agentic.curriculum.task_sampler import Sampler, TaskSampler


class TaskSettings(Settings, ABC):
    """A member of the family ``tasks``: settings that make one sampler an environment."""

    @abstractmethod
    def make(self, *, env: str, split: str, num_tasks: int, seed: int) -> Sampler:
        """A sampler of one split.

        Raises:
            InputError: the split is empty.
        """


class UniformTasks(TaskSettings):
    """Every task once an epoch, in an order that the seed decides."""

    def make(self, *, env: str, split: str, num_tasks: int, seed: int) -> Sampler:
        """See :class:`~rllib_agentic.curriculum.task_sampler.TaskSampler`."""
        return TaskSampler(env=env, split=split, num_tasks=num_tasks, seed=seed)


class TasksBySuccess(TaskSettings):
    """Tasks that were solved sometimes come up more often than those that are always or never solved.

    Attributes:
        half_life: iterations after which what was observed counts half.
        floor: least weight of any task, as a part of that of a task never seen.
    """

    half_life: float = Field(default=20.0, gt=0)
    floor: float = Field(default=0.1, gt=0)

    def make(self, *, env: str, split: str, num_tasks: int, seed: int) -> Sampler:
        """See :class:`~rllib_agentic.curriculum.by_success.SuccessSampler`."""
        return SuccessSampler(
            env=env, split=split, num_tasks=num_tasks, seed=seed, half_life=self.half_life, floor=self.floor
        )


TASK_SAMPLERS: Family[TaskSettings] = Family("tasks", {"uniform": UniformTasks, "by_success": TasksBySuccess})
