"""The same interaction budget all the time."""

from __future__ import annotations

from pydantic import Field

from rllib_agentic.components import Settings
from rllib_agentic.curriculum.schedule import CurriculumState


class FixedCurriculum(Settings):
    """One budget from the first iteration to the last.

    Attributes:
        max_turns: the budget; None for that of the rollout settings.
    """

    max_turns: int | None = Field(default=None, ge=1)

    def initial_state(self) -> CurriculumState:
        """See :class:`~rllib_agentic.curriculum.schedule.Curriculum`."""
        return self.state_after(0)

    def state_after(self, completed: int) -> CurriculumState:
        """The state after so many completed iterations: there is one stage."""
        return {"stage": 0}

    def budget(self, state: CurriculumState, default: int) -> int:
        """See :class:`~rllib_agentic.curriculum.schedule.Curriculum`."""
        return default if self.max_turns is None else self.max_turns

    def advance(self, state: CurriculumState, iteration: int, success: float | None) -> CurriculumState:
        """See :class:`~rllib_agentic.curriculum.schedule.Curriculum`."""
        return state
