"""ScalingInter-RL: the interaction budget grows by stages of equal length."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from rllib_agentic.components import Settings
from rllib_agentic.curriculum.schedule import CurriculumState, check_growing


class ScalingInterCurriculum(Settings):
    """The schedule of AgentGym-RL (arXiv:2509.08755).

    Iterations count from 1, and the stage rises when one is completed whose number is a multiple of ``every``: with
    ``every=100`` the first stage is iterations 1 to 100, the second 101 to 200, and the last one never ends. So after
    n completed iterations, also in a run that resumes there, the stage is ``min(n // every, last)``.

    Example:
        >>> schedule = ScalingInterCurriculum(max_turns=(10, 20, 30), every=100)
        >>> [schedule.budget(schedule.state_after(n), 0) for n in (0, 99, 100, 199, 200, 900)]
        [10, 10, 20, 20, 30, 30]

    Attributes:
        max_turns: the budget of each stage, growing.
        every: iterations a stage.
    """

    max_turns: Annotated[tuple[int, ...], AfterValidator(check_growing)]
    every: int = Field(default=100, ge=1)

    def initial_state(self) -> CurriculumState:
        """See :class:`~rllib_agentic.curriculum.schedule.Curriculum`."""
        return self.state_after(0)

    def state_after(self, completed: int) -> CurriculumState:
        """The state after so many completed iterations; it depends on nothing else."""
        return {"stage": min(completed // self.every, len(self.max_turns) - 1)}

    def budget(self, state: CurriculumState, default: int) -> int:
        """See :class:`~rllib_agentic.curriculum.schedule.Curriculum`."""
        return self.max_turns[state["stage"]]

    def advance(self, state: CurriculumState, iteration: int, success: float | None) -> CurriculumState:
        """See :class:`~rllib_agentic.curriculum.schedule.Curriculum`."""
        return self.state_after(iteration)
