"""Curricula: how many turns an episode may have, as training goes on."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Protocol, runtime_checkable

from rllib_agentic.components import Family, Settings

CurriculumState = Mapping[str, int]
"""Plain numbers that go into checkpoints; ``stage`` (from 0) is always among them."""


@runtime_checkable
class Curriculum(Protocol):
    """A pure function from what happened to the next interaction budget; all memory is in the state.

    An algorithm asks :meth:`budget` before each iteration and :meth:`advance` after it. A resumed run goes on from the
    state in its checkpoint, exactly as one that was never stopped.
    """

    def initial_state(self) -> CurriculumState:
        """The state before the first iteration."""
        ...

    def budget(self, state: CurriculumState, default: int) -> int:
        """Turns that the episodes of the next iteration may have; ``default`` is that of the rollout settings."""
        ...

    def advance(self, state: CurriculumState, iteration: int, success: float | None) -> CurriculumState:
        """The state after an iteration.

        Args:
            state: the state that the iteration ran with.
            iteration: the number of the iteration that has just been completed; the first is 1.
            success: success rate in [0, 1] that was observed in it, or None.
        """
        ...


CURRICULA: Family[Settings] = Family(
    "curriculum",
    {
        "fixed": "rllib_agentic.curriculum.fixed:FixedCurriculum",
        "scaling_inter": "rllib_agentic.curriculum.scaling_inter:ScalingInterCurriculum",
        "adaptive": "rllib_agentic.curriculum.adaptive:AdaptiveCurriculum",
    },
)


def check_growing(max_turns: tuple[int, ...]) -> tuple[int, ...]:
    """Budgets by stage: at least one, each at least 1, each larger than the one before.

    Raises:
        ValueError: they are not.
    """
    grows = all(a < b for a, b in pairwise(max_turns))
    if not max_turns or max_turns[0] < 1 or not grows:
        raise ValueError("expected growing numbers of turns, a stage each, such as [10, 20, 30]")
    return max_turns
