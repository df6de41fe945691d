"""How training unfolds: interaction budgets by stage, and which tasks are played."""

from rllib_agentic.curriculum.schedule import CURRICULA, Curriculum, CurriculumState
from rllib_agentic.curriculum.task_sampler import TaskSampler

__all__ = ["CURRICULA", "Curriculum", "CurriculumState", "TaskSampler"]
