"""How training unfolds: interaction budgets by stage, and which tasks are played."""

from rllib_agentic.curriculum.budgets import Budgets
from rllib_agentic.curriculum.mixture import TaskMixture
from rllib_agentic.curriculum.schedule import CURRICULA, Curriculum, CurriculumState
from rllib_agentic.curriculum.task_sampler import TaskSampler
from rllib_agentic.curriculum.tasks import TASK_SAMPLERS

__all__ = [
    "CURRICULA",
    "TASK_SAMPLERS",
    "Budgets",
    "Curriculum",
    "CurriculumState",
    "TaskMixture",
    "TaskSampler",
]
