"""A sound little environment, and one broken copy for each thing that the checker must notice."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.trajectory.message import Message


class Sound:
    """Count down to zero: "down" lowers the number, "stay" does not; five steps are allowed."""

    def __init__(self) -> None:
        self.number = 0
        self.steps = 0
        self.running = False

    def schema(self) -> EnvSchema:
        return EnvSchema(
            name="countdown",
            version="1",
            splits={"train": 6, "test": 3},
            splits_hash="none",
            action_format="down or stay",
            lists_actions=True,
            max_turns=5,
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        self.number = 1 + index % 3
        self.steps = 0
        self.running = True
        self.name = f"{split} {index}"
        return self._show(f"{self.name}: the number is {self.number}")

    def step(self, action: str) -> StepResult:
        if not self.running:
            raise RuntimeError("call reset")
        self.steps += 1
        self.number -= action == "down"
        won, late = self.number == 0, self.steps >= 5
        self.running = not (won or late)
        return StepResult(
            self._show(f"now {self.number}"),
            reward=float(won),
            terminated=won,
            truncated=late and not won,
            success=won,
            metrics={"invalid_action": float(action not in ("down", "stay"))},
        )

    def close(self) -> None:
        self.running = False

    def expert_action(self) -> str:
        return "down"

    def _show(self, text: str) -> Observation:
        return Observation((Message("user", text),), actions=("down", "stay"), state_key=f"{self.name} {self.number}")


class NoClose(Sound):
    close = None  # type: ignore[assignment]


class SchemaIsDict(Sound):
    def schema(self) -> Any:
        return {"name": "countdown"}


class EmptySplit(Sound):
    def schema(self) -> EnvSchema:
        return replace(super().schema(), splits={"train": 6, "test": 0})


class ResetGivesText(Sound):
    def reset(self, split: str, index: int, seed: int) -> Any:
        return super().reset(split, index, seed).messages[0].content


class SpeaksAsAssistant(Sound):
    def _show(self, text: str) -> Observation:
        return replace(super()._show(text), messages=(Message("assistant", text),))


class ActionsAsList(Sound):
    def _show(self, text: str) -> Observation:
        return replace(super()._show(text), actions=["down", "stay"])  # type: ignore[arg-type]


class InfoNotJson(Sound):
    def _show(self, text: str) -> Observation:
        return replace(super()._show(text), info={"set": {1}})


class RewardNan(Sound):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), reward=float("nan"))


class FlagIsNumber(Sound):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), success=1)  # type: ignore[arg-type]


class GlobalRandom(Sound):
    def reset(self, split: str, index: int, seed: int) -> Observation:
        return self._with(super().reset(split, index, seed), random.random())

    def _with(self, observation: Observation, number: float) -> Observation:
        return replace(observation, messages=(Message("user", f"draw {number}"),))


class RemembersEpisodes(Sound):
    episodes = 0

    def reset(self, split: str, index: int, seed: int) -> Observation:
        self.episodes += 1
        return replace(super().reset(split, index, seed), state_key=str(self.episodes))


class UsesHash(Sound):
    def reset(self, split: str, index: int, seed: int) -> Observation:
        return replace(super().reset(split, index, seed), state_key=str(hash(split)))


class Shared(Sound):
    numbers: dict[str, int] = {}  # noqa: RUF012

    def reset(self, split: str, index: int, seed: int) -> Observation:
        self.numbers["now"] = 3
        return super().reset(split, index, seed)

    def step(self, action: str) -> StepResult:
        self.numbers["now"] -= 1
        result = super().step(action)
        return replace(result, metrics={**result.metrics, "left": self.numbers["now"]})


class CloseTwiceFails(Sound):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise ValueError("closed already")
        self.closed = True


class NoResetAfterClose(Sound):
    closed = False

    def close(self) -> None:
        self.closed = True

    def reset(self, split: str, index: int, seed: int) -> Observation:
        if self.closed:
            raise ValueError("I am closed")
        return super().reset(split, index, seed)


class PaysAfterTheEnd(Sound):
    def step(self, action: str) -> StepResult:
        if not self.running:
            return StepResult(self._show("again"), reward=1.0, terminated=True, success=True)
        return super().step(action)


class ReusesObservation(Sound):
    def reset(self, split: str, index: int, seed: int) -> Observation:
        self.info: dict[str, int] = {"steps": 0}
        return replace(super().reset(split, index, seed), info=self.info)

    def step(self, action: str) -> StepResult:
        self.info["steps"] += 1
        return super().step(action)


class ListsAnInvalidAction(Sound):
    def _show(self, text: str) -> Observation:
        return replace(super()._show(text), actions=("down", "fly"))


class RaisesOnNonsense(Sound):
    def step(self, action: str) -> StepResult:
        if action not in ("down", "stay"):
            raise KeyError(action)
        return super().step(action)


class DoesNotCountNonsense(Sound):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), metrics={})


class PaysTooMuch(Sound):
    def step(self, action: str) -> StepResult:
        result = super().step(action)
        return replace(result, reward=3 * result.reward)


class SplitsOverlap(Sound):
    def reset(self, split: str, index: int, seed: int) -> Observation:
        return super().reset("any", index, seed)


class ExpertIsWrong(Sound):
    def expert_action(self) -> str:
        return "stay"


class ListsNothing(Sound):
    def _show(self, text: str) -> Observation:
        return replace(super()._show(text), actions=None)


class SchemaChanges(Sound):
    def schema(self) -> EnvSchema:
        return replace(super().schema(), splits_hash=str(time.perf_counter_ns()))
