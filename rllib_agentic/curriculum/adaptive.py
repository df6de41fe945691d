"""The interaction budget grows when the policy has learned enough for the present one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from rllib_agentic.components import Settings
from rllib_agentic.curriculum.schedule import CurriculumState, check_growing


class AdaptiveCurriculum(Settings):
    """Goes to the next stage when success has been high for long enough.

    A stage ends after ``min_iterations`` at the earliest, and once ``patience`` observed success rates reached
    ``threshold``. One that falls below ``threshold - hysteresis`` starts that count anew; one in between neither counts
    nor resets, so noise around the threshold cannot hold a good policy back. There is no way back to a smaller budget.

    Example:
        >>> schedule = AdaptiveCurriculum(max_turns=(10, 20), threshold=0.8, patience=2, min_iterations=3)
        >>> state = schedule.initial_state()
        >>> for iteration, success in enumerate([0.9, 0.78, 0.85], 1):
        ...     state = schedule.advance(state, iteration, success)
        >>> schedule.budget(state, 0)
        20

    Attributes:
        max_turns: the budget of each stage, growing.
        threshold: success rate to reach.
        hysteresis: how far success may fall below the threshold before the count starts anew.
        patience: how many observations must reach the threshold.
        min_iterations: the fewest iterations of a stage.
        watch: whose success rate the algorithm passes in: that of the ``training`` episodes of every iteration, or
            of the held-out ``evaluation``, which is observed only where one was made.
    """

    max_turns: Annotated[tuple[int, ...], AfterValidator(check_growing)]
    threshold: float = Field(default=0.8, gt=0, le=1)
    hysteresis: float = Field(default=0.05, ge=0, lt=1)
    patience: int = Field(default=3, ge=1)
    min_iterations: int = Field(default=10, ge=1)
    watch: Literal["training", "evaluation"] = "training"

    def initial_state(self) -> CurriculumState:
        """See :class:`~rllib_agentic.curriculum.schedule.Curriculum`."""
        return {"stage": 0, "iterations": 0, "reached": 0}

    def budget(self, state: CurriculumState, default: int) -> int:
        """See :class:`~rllib_agentic.curriculum.schedule.Curriculum`."""
        return self.max_turns[state["stage"]]

    def advance(self, state: CurriculumState, iteration: int, success: float | None) -> CurriculumState:
        """See :class:`~rllib_agentic.curriculum.schedule.Curriculum`."""
        stage, iterations, reached = state["stage"], state["iterations"] + 1, state["reached"]
        if success is not None:
            if success >= self.threshold:
                reached += 1
            elif success < self.threshold - self.hysteresis:
                reached = 0
        if stage + 1 < len(self.max_turns) and iterations >= self.min_iterations and reached >= self.patience:
            return {"stage": stage + 1, "iterations": 0, "reached": 0}
        return {"stage": stage, "iterations": iterations, "reached": reached}
