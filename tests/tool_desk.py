"""A tool environment for tests: tools that do each thing that a tool can do."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from rllib_agentic.components import parse_settings
from rllib_agentic.envs.env import EnvSchema, Observation
from rllib_agentic.tools import Grade, Tool, ToolEnv, ToolError, ToolResult, ToolUse, tool
from rllib_agentic.trajectory import Message

_FAILURES = {"key": KeyError, "value": ValueError, "runtime": RuntimeError, "timeout": TimeoutError}


class Desk(ToolEnv):
    """The answer is 7; every call that runs is noted in ``ran``."""

    def __init__(self, tools: Sequence[Tool] | None = None, **use: Any) -> None:
        super().__init__(tools, parse_settings(ToolUse, use, "use"))
        self.ran: list[str] = []
        self.answers: list[str] = []
        self.freed = 0

    def schema(self) -> EnvSchema:
        return self.describe("desk", splits={"train": 3, "test": 2}, splits_hash="1", reward_range=(-1.0, 2.0))

    def begin(self, split: str, index: int, seed: int) -> Observation:
        self.ran = []
        return Observation((Message("user", f"{split} {index}: 3 + 4?"),))

    def grade(self, answer: str) -> Grade:
        self.answers.append(answer)
        return Grade(reward=float(answer == "7"), success=answer == "7", rewards={"answer": float(answer == "7")})

    def end(self) -> None:
        self.freed += 1

    @tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: the first.
            b: the second.
        """
        self.ran.append(f"add {a} {b}")
        return a + b

    @tool
    async def echo(self, text: str, times: Annotated[int, Field(ge=1)] = 1) -> str:
        """Say a text again."""
        self.ran.append(f"echo {text}")
        return text * times

    @tool
    async def rest(self, seconds: float) -> str:
        """Wait."""
        self.ran.append(f"rest {seconds}")
        await asyncio.sleep(seconds)
        return f"rested {seconds}"

    @tool
    def block(self, seconds: float) -> str:
        """Wait without letting others run."""
        time.sleep(seconds)
        return f"blocked {seconds}"

    @tool
    def paid(self, reward: float) -> ToolResult:
        """Pay a reward."""
        return ToolResult("paid", reward=reward, metadata={"metrics": {"coins": 2}})

    @tool
    def refuse(self) -> str:
        """Refuse."""
        raise ToolError("the desk is closed")

    @tool
    def break_down(self, how: str) -> str:
        """Fail as a tool does that has a bug."""
        raise _FAILURES[how](how)


def returns(value: Any) -> Tool:
    """A tool ``give`` that returns, or raises, what it was made with."""

    @tool
    def give() -> Any:
        """Give it."""
        if isinstance(value, BaseException):
            raise value
        return value

    return give


class RawTool:
    """A tool that is no function: its schema is taken as it is."""

    def __init__(self, parameters: Any, name: str = "raw") -> None:
        self.name, self.description, self.parameters = name, "raw", parameters

    async def execute(self, arguments: Mapping[str, Any]) -> ToolResult:
        return ToolResult(json.dumps(arguments))


def call(name: str, **arguments: Any) -> str:
    """A call as Hermes writes it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def outputs(messages: Sequence[Message]) -> list[str]:
    """The texts within the response tags of an observation."""
    parts = "".join(message.content for message in messages).split("<tool_response>\n")[1:]
    return [part.split("\n</tool_response>")[0] for part in parts]
