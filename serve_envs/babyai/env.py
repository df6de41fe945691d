"""BabyAI as a text environment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError, did_you_mean
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.babyai.expert import Expert
from serve_envs.babyai.levels import family, level_ids, make_level
from serve_envs.babyai.options import PRIMITIVES, Steps, list_options
from serve_envs.babyai.tasks import all_seeds, make_splits, splits_hash
from serve_envs.babyai.view import View, describe, look
from serve_envs.babyai.world import state_key

_SYSTEM = (
    "You carry out a mission in a world of rooms, and see what lies before you. Actions, one at a time: turn left, "
    "turn right, move forward, pick up, drop, toggle (opens what is right in front of you)"
)
_HIGH_LEVEL = "; go to NAME, pick up NAME, go through NAME, toggle and go through NAME, with a name that you see"
_GRAMMAR = re.compile(
    r"(?:go to|pick up|go through|toggle and go through) [a-z]+ (?:(?:open|closed|locked) )?[a-z]+ \d+"
)


class BabyAI:
    """Carry out a mission: go somewhere, open, pick up, put next to, and chains of these.

    Args:
        levels: short names of the levels, for example ``GoToLocal``; None for all 96.
        actions: ``both`` high-level and primitive actions, or ``primitive`` ones only.
        reward: ``success`` pays 1 for the mission, ``minigrid`` pays 1 - 0.9 x the share of the level's steps used.
        max_steps: actions after which the episode is truncated; the level's own limit on primitive steps also holds.

    Raises:
        InputError: an unknown level, or an argument out of range.
    """

    def __init__(
        self,
        levels: Sequence[str] | None = None,
        actions: Literal["both", "primitive"] = "both",
        reward: Literal["success", "minigrid"] = "success",
        max_steps: int = 200,
    ) -> None:
        chosen = tuple(level_ids()) if levels is None else tuple(dict.fromkeys(levels))
        for level in chosen:
            if level not in all_seeds():
                raise InputError(f"babyai: levels: there is no {level!r}. {did_you_mean(level, all_seeds())}")
        if not chosen:
            raise InputError("babyai: levels must name at least one level")
        if actions not in ("both", "primitive"):
            raise InputError(f"babyai: actions must be 'both' or 'primitive', got {actions!r}")
        if reward not in ("success", "minigrid"):
            raise InputError(f"babyai: reward must be 'success' or 'minigrid', got {reward!r}")
        if max_steps < 1:
            raise InputError(f"babyai: max_steps must be at least 1, got {max_steps}")
        self._levels = chosen
        self._high_level = actions == "both"
        self._minigrid_reward = reward == "minigrid"
        self._max_steps = max_steps
        self._level: Any = None
        self._expert: Expert | None = None
        self._options: dict[str, Steps] = {}
        self._done: list[int] = []
        self._turns = 0

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        high_level = ", 'go to red ball 1' or another high-level action" if self._high_level else ""
        return EnvSchema(
            name="babyai",
            version="1",
            splits={split: len(tasks) for split, tasks in make_splits(self._levels).items()},
            splits_hash=splits_hash(self._levels),
            action_format=f"One of {', '.join(PRIMITIVES)}{high_level}; bare, or after 'Action:'. Example: drop",
            lists_actions=True,
            reward_range=(0.0, 1.0),
            max_turns=min(self._max_steps, 20 if self._high_level else 64),
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Enter the level. The task fixes layout and mission, so ``seed`` changes nothing."""
        mission = make_splits(self._levels)[split][index]
        self._level = make_level(mission.level, mission.seed)
        self._expert = Expert(mission.level, mission.seed)
        self._done = []
        self._turns = 0
        text = describe(self._level.mission, self._look())
        system = f"{_SYSTEM}{_HIGH_LEVEL if self._high_level else ''}."
        return Observation(
            messages=(Message("system", system), Message("user", text)),
            actions=tuple(self._options),
            state_key=state_key(self._level),
            info={"category": family(mission.level), "level": mission.level},
        )

    def step(self, action: str) -> StepResult:
        """Carry out one action, or say why that cannot be done.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
        """
        level = self._running()
        self._turns += 1
        words = " ".join(extract_action(action).lower().split())
        steps = self._options.get(words)
        known = steps is not None or words in PRIMITIVES or bool(self._high_level and _GRAMMAR.fullmatch(words))
        paid, terminated, truncated = 0.0, False, False
        for step in steps or ():
            _, pay, terminated, truncated, _ = level.step(step)
            self._done.append(step)
            paid += float(pay)
            if terminated or truncated:
                break
        success = bool(terminated and paid > 0)
        truncated = bool(not terminated and (truncated or self._turns >= self._max_steps))
        text = describe(level.mission, self._look())
        if terminated:
            text = "The mission is accomplished." if success else "The mission has failed."
        elif not steps:
            text = f"{'That cannot be done now' if known else 'That is no action'}.\n{text}"
        observation = Observation(
            messages=(Message("user", text),),
            actions=() if terminated else tuple(self._options),
            state_key=state_key(level),
        )
        if terminated or truncated:
            self._level = None
        return StepResult(
            observation,
            reward=paid if self._minigrid_reward else float(success),
            terminated=bool(terminated),
            truncated=truncated,
            success=success,
            metrics={
                "invalid_action": float(not known),
                "failed_action": float(known and not steps),
                "primitive_steps": float(len(steps or ())),
            },
        )

    def close(self) -> None:
        """End the episode; nothing else is held."""
        self._level = self._expert = None

    def expert_action(self) -> str:
        """The action that goes furthest along the plan of BabyAI's bot."""
        level = self._running()
        assert self._expert is not None
        return self._expert.advise(level, self._done, self._options)

    def _running(self) -> Any:
        if self._level is None:
            raise RuntimeError("babyai: no episode is running; call reset")
        return self._level

    def _look(self) -> View:
        view = look(self._level)
        self._options = list_options(self._level, view, with_high_level=self._high_level)
        return view
