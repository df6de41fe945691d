"""What services of other projects have in common as seen from here: tasks by number, texts, and steps sent once."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated

from pydantic import Field, field_validator

from rllib_agentic.components import Settings
from rllib_agentic.envs.env import EnvSchema
from rllib_agentic.envs.faults import EnvFault, FaultCode
from rllib_agentic.envs.retries import RetryPolicy
from rllib_agentic.envs.session import EnvClient
from rllib_agentic.trajectory.message import Message

TaskRange = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]]


class ForeignSettings(Settings):
    """Base of the settings of a foreign dialect.

    Attributes:
        tasks: for each split the numbers of its tasks on the server, ``[first, end)``; they may not overlap.
            Such servers do not say how many tasks they have.
        instructions: what the agent is told before the first observation; their servers leave that to the client.
        action_format: one line for people.
        max_turns: a sensible interaction budget.
        call_timeout_s: longest wait for one answer.
    """

    tasks: Mapping[str, TaskRange]
    instructions: str = ""
    action_format: str = "What the server expects, as text."
    max_turns: int = Field(default=30, ge=1)
    call_timeout_s: float = Field(default=120.0, gt=0)

    @field_validator("tasks")
    @classmethod
    def _disjoint(cls, tasks: Mapping[str, TaskRange]) -> Mapping[str, TaskRange]:
        if not tasks:
            raise ValueError("name at least one split, for example {train: [0, 374], test: [374, 474]}")
        ranges = sorted((first, end, split) for split, (first, end) in tasks.items())
        for first, end, split in ranges:
            if first >= end:
                raise ValueError(f"split {split!r}: [first, end) must hold a task, got [{first}, {end}]")
        for (_, end, split), (first, _, other) in pairwise(ranges):
            if first < end:
                raise ValueError(f"splits {split!r} and {other!r} share tasks; a task belongs to one split")
        return tasks

    @abstractmethod
    def client(self, url: str, env_name: str, retries: RetryPolicy) -> EnvClient:
        """A client of the server at a URL, known as ``env_name``."""

    def number_of(self, split: str, index: int) -> int:
        """The server's number of a task.

        Raises:
            EnvFault: ``bad_input``, with the valid range.
        """
        if split not in self.tasks:
            raise EnvFault(FaultCode.BAD_INPUT, f"no split {split!r}; known: {', '.join(self.tasks)}")
        first, end = self.tasks[split]
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < end - first:
            text = f"split {split!r} has the task indices 0 to {end - first - 1}, got {index!r}"
            raise EnvFault(FaultCode.BAD_INPUT, text)
        return first + index

    def describe(self, name: str, dialect: str, *, lists_actions: bool) -> EnvSchema:
        """What the rollout must know; the hash names dialect and task numbers, which is all that is known here."""
        told = json.dumps([name, dialect, {split: list(span) for split, span in sorted(self.tasks.items())}])
        return EnvSchema(
            name=name,
            version=dialect,
            splits={split: end - first for split, (first, end) in self.tasks.items()},
            splits_hash=hashlib.sha256(told.encode()).hexdigest()[:16],
            action_format=self.action_format,
            lists_actions=lists_actions,
            max_turns=self.max_turns,
        )

    def opening(self, text: str) -> tuple[Message, ...]:
        """Instructions, where there are any, and the first observation."""
        system = (Message("system", self.instructions),) if self.instructions else ()
        return (*system, Message("user", text))


def lost(fault: EnvFault) -> EnvFault:
    """What a failed step means: nobody knows whether it happened, so the session cannot go on, but may be rebuilt."""
    if fault.code in (FaultCode.UNREACHABLE, FaultCode.BAD_ANSWER):
        return EnvFault(FaultCode.SESSION_CLOSED, f"a step that cannot be repeated got no good answer: {fault}")
    return fault
