"""The interaction budgets of a run: one curriculum an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rllib_agentic.curriculum.schedule import Curriculum, CurriculumState


class StageChange(NamedTuple):
    """An environment's curriculum went on: ``before`` and ``after`` are budgets in turns, ``stage`` the new one."""

    env: str
    before: int
    after: int
    stage: int

    def __str__(self) -> str:
        """One line for people."""
        return f"{self.env}: the interaction budget grows from {self.before} to {self.after} turns (stage {self.stage})"


class Budgets:
    """Keeps the state of every environment's curriculum.

    Args:
        curricula: by environment.
        default: budget of a curriculum that names none.
    """

    def __init__(self, curricula: Mapping[str, Curriculum], default: int) -> None:
        self._curricula = dict(curricula)
        self._default = default
        self._states: dict[str, CurriculumState] = {env: c.initial_state() for env, c in self._curricula.items()}

    def __getitem__(self, env: str) -> int:
        """Turns that an episode of this environment may have now."""
        return self._curricula[env].budget(self._states[env], self._default)

    @property
    def watches_evaluation(self) -> bool:
        """Whether any curriculum goes by held-out success."""
        return any(watched(curriculum) == "evaluation" for curriculum in self._curricula.values())

    def advance(
        self, iteration: int, training: Mapping[str, float], evaluation: Mapping[str, float]
    ) -> list[StageChange]:
        """Close an iteration.

        Args:
            iteration: its number, from 1.
            training: success rate of its training episodes, by environment; absent where there were none.
            evaluation: held-out success rate, by environment; absent where none was measured.

        Returns:
            What changed.
        """
        changes = []
        for env, curriculum in self._curricula.items():
            success = (evaluation if watched(curriculum) == "evaluation" else training).get(env)
            before, stage = self[env], self._states[env]["stage"]
            self._states[env] = curriculum.advance(self._states[env], iteration, success)
            if self._states[env]["stage"] != stage:
                changes.append(StageChange(env, before, self[env], self._states[env]["stage"]))
        return changes

    def metrics(self) -> dict[str, float]:
        """``max_turns`` and ``stage``; under the environment's name where there are several."""
        several = len(self._curricula) > 1
        found: dict[str, float] = {}
        for env, state in self._states.items():
            place = f"{env}/" if several else ""
            found |= {f"{place}max_turns": float(self[env]), f"{place}stage": float(state["stage"])}
        return found

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {env: dict(state) for env, state in self._states.items()}

    def set_state(self, state: Mapping[str, Any], completed: int) -> None:
        """Go on where the state was taken, perhaps by a run with other curricula.

        Args:
            state: of :meth:`state`.
            completed: iterations that the run had completed then.
        """
        for env, curriculum in self._curricula.items():
            if env in state:
                self._states[env] = _taken_over(curriculum, state[env], completed)


def _taken_over(curriculum: Any, stored: Mapping[str, int], completed: int) -> CurriculumState:
    """A stored state as this curriculum understands it; what another kind of curriculum counted is nothing to it."""
    if hasattr(curriculum, "state_after"):
        after: CurriculumState = curriculum.state_after(completed)
        return after
    fresh = curriculum.initial_state()
    if stored.keys() != fresh.keys():
        return fresh
    last = len(curriculum.max_turns) - 1 if hasattr(curriculum, "max_turns") else stored["stage"]
    return {**stored, "stage": min(stored["stage"], last)}


def watched(curriculum: object) -> str:
    """Whose success a curriculum goes by: ``training`` or ``evaluation``."""
    return getattr(curriculum, "watch", "training")
