"""BabyAI's own bot, and how its steps become actions of the agent."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minigrid.envs.babyai.core.verifier import PutNextInstr
from minigrid.utils.baby_ai_bot import BabyAIBot, GoNextToSubgoal

from serve_envs.babyai.levels import make_level
from serve_envs.babyai.options import PRIMITIVES, TOGGLE, Steps
from serve_envs.babyai.world import state_key
from serve_envs.grid import Cell

_log = logging.getLogger(__name__)
_WORDS = {step: word for word, step in PRIMITIVES.items()}
_MOST_STEPS = 2000
_MOST_SUBGOALS = 300


class Expert:
    """Plans with the bot on a level of its own, which repeats what has been done; the session's level is not touched.

    Args:
        name: short name of the level.
        seed: decides layout and mission.
    """

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._seed = seed
        self._plan: list[int] = []
        self._places: Mapping[str, int] = {}

    def solves(self) -> bool:
        """Whether the bot finds a way from the start to the end of the mission."""
        level = make_level(self._name, self._seed)
        self._make_plan(())
        results = [level.step(step) for step in self._plan]
        return bool(results and results[-1][2] and results[-1][1] > 0)

    def advise(self, level: Any, done: Sequence[int], options: Mapping[str, Steps]) -> str:
        """The action that goes furthest along the bot's plan; one of ``options`` wherever the plan has one.

        Args:
            level: the session's level, which stays as it is.
            done: all steps taken since the reset.
            options: admissible actions and their steps.
        """
        here = self._places.get(state_key(level))
        if here is None:
            self._plan = []
            self._make_plan(done)
            here = 0
        furthest, choice = here, ""
        for action, steps in options.items():
            reached = self._places.get(state_key(_after(level, steps)), -1)
            if reached > furthest:
                furthest, choice = reached, action
        if choice:
            return choice
        return _WORDS.get(self._plan[here], "turn left") if here < len(self._plan) else "turn left"

    def _make_plan(self, done: Sequence[int]) -> None:
        """Let the bot follow what was done and go on; where it is lost, let it begin anew, boxes with keys first."""
        for ways in (self._followed, self._anew):
            level = make_level(self._name, self._seed)
            places: dict[str, int] = {}
            plan: list[int] = []
            solved = False
            try:
                for step in ways(level, done):
                    if not places:
                        places[state_key(level)] = 0
                    _, reward, terminated, truncated, _ = level.step(step)
                    plan.append(int(step))
                    places[state_key(level)] = len(plan)
                    solved = bool(terminated and reward > 0)
                    if terminated or truncated or len(plan) == _MOST_STEPS:
                        break
            except Exception:  # there are missions that the bot cannot plan; its plan holds as far as it came
                _log.debug("BabyAI's bot gave up after %d steps", len(plan), exc_info=True)
            if solved or not self._plan:
                self._plan, self._places = plan, places or {state_key(level): 0}
            if solved:
                return

    @staticmethod
    def _followed(level: Any, done: Sequence[int]) -> Iterator[int]:
        bot = _Bot(level)
        step = bot.replan()
        for taken in done:
            level.step(taken)
            step = bot.replan(taken)
        while step != level.actions.done:
            yield int(step)
            step = bot.replan(step)

    @staticmethod
    def _anew(level: Any, done: Sequence[int]) -> Iterator[int]:
        for taken in done:
            level.step(taken)
        if box := _box_with_key(level):
            bot = _Bot(level)
            bot.stack = [GoNextToSubgoal(bot, box)]
            while (step := bot.replan()) != level.actions.done:
                yield int(step)
            yield TOGGLE
        bot = _Bot(level)
        while (step := bot.replan()) != level.actions.done:
            yield int(step)


def _box_with_key(level: Any) -> Cell | None:
    """Where a box hides a key, which the bot does not expect."""
    for number, thing in enumerate(level.grid.grid):
        if thing is not None and thing.type == "box" and getattr(thing.contains, "type", "") == "key":
            return (number % level.width, number // level.width)
    return None


class _Bot(BabyAIBot):
    """The bot, with two repairs: it knows what it carries from the start, and it does not go round in circles."""

    stack: list[Any]

    def __init__(self, level: Any) -> None:
        super().__init__(level)
        instruction = level.instrs
        if isinstance(instruction, PutNextInstr) and level.carrying in instruction.desc_move.obj_set:
            self.stack = self.stack[:-2]  # all but: go to it, pick it up

    def replan(self, action_taken: int | None = None) -> Any:
        """The next step; see the package. It raises where the bot adds subgoals for ever."""
        self.stack = _Stack(self.stack)
        return super().replan(action_taken)


class _Stack(list[Any]):
    added = 0

    def append(self, subgoal: Any) -> None:
        self.added += 1
        if self.added > _MOST_SUBGOALS:
            raise RuntimeError("the bot goes round in circles")
        super().append(subgoal)


def _after(level: Any, steps: Steps) -> Any:
    imagined = copy.deepcopy(level)
    for step in steps:
        _, _, terminated, truncated, _ = imagined.step(step)
        if terminated or truncated:
            break
    return imagined
