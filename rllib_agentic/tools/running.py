"""Running the calls of a turn: budgets, limits, and one outcome a call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from rllib_agentic.errors import did_you_mean
from rllib_agentic.tools.arguments import ArgumentsFault, bind_arguments
from rllib_agentic.tools.calling import BadCall, Call
from rllib_agentic.tools.output import result_text, shorten
from rllib_agentic.tools.schema import check_tools
from rllib_agentic.tools.tool import Tool, ToolError, ToolResult
from rllib_agentic.tools.use import ToolUse


class Outcome(StrEnum):
    """How one call ended; also the name of its metric."""

    OK = "tool_ok"  # it ran and answered
    ERROR = "tool_error"  # it ran and raised ToolError
    TIMEOUT = "tool_timeout"  # it ran and was given up
    PARSE_ERROR = "tool_parse_error"  # it could not be read
    UNKNOWN = "tool_unknown"  # there is no such tool
    BAD_ARGUMENTS = "tool_bad_arguments"  # its arguments do not fit the schema
    OVER_LIMIT = "tool_over_limit"  # a budget was used up


@dataclass(frozen=True, slots=True)
class CallResult:
    """One call and what became of it.

    Attributes:
        call: as it was read.
        outcome: how it ended.
        result: its text is what the agent reads, shortened where it was too long.
        shortened: whether it was.
    """

    call: Call | BadCall
    outcome: Outcome
    result: ToolResult
    shortened: bool = False


class _Ready(NamedTuple):
    """A call that may run."""

    call: Call
    tool: Tool
    arguments: dict[str, Any]


@dataclass(slots=True)
class CallRunner:
    """Runs the calls of one episode under its budgets.

    Args:
        tools: what can be called.
        use: budgets and order.

    Raises:
        InputError: tools that cannot work together; see :func:`~rllib_agentic.tools.schema.check_tools`.
    """

    tools: Sequence[Tool]
    use: ToolUse
    calls: int = 0
    seconds: float = 0.0
    _by_name: dict[str, Tool] = field(init=False)
    _checks: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self._checks = check_tools(self.tools)
        self._by_name = {tool.name: tool for tool in self.tools}

    async def run(self, calls: Sequence[Call | BadCall]) -> list[CallResult]:
        """One result a call, in the order of the calls. Calls that cannot run use up no budget.

        Raises:
            Exception: what a tool raised that is no ``ToolError``; the calls beside it are cancelled.
        """
        began = time.monotonic()
        ready = 0
        jobs: list[CallResult | _Ready] = []
        for call in calls:
            job = self._prepare(call, ready)
            ready += isinstance(job, _Ready)
            jobs.append(job)
        self.calls += ready
        if self.use.order == "in_order":
            results = [job if isinstance(job, CallResult) else await self._execute(job, began) for job in jobs]
        else:
            results = await self._side_by_side(jobs, began)
        self.seconds += time.monotonic() - began
        return results

    def _prepare(self, call: Call | BadCall, ready: int) -> CallResult | _Ready:
        if isinstance(call, BadCall):
            return _refused(call, Outcome.PARSE_ERROR, f"parse error: {call.fault}")
        tool = self._by_name.get(call.name)
        if tool is None:
            text = f"unknown tool {call.name!r:.120}. {did_you_mean(call.name, self._by_name)}"
            return _refused(call, Outcome.UNKNOWN, text)
        try:
            arguments = bind_arguments(call, tool.parameters)
            fault = self._checks[call.name].fault(arguments)
        except ArgumentsFault as error:
            fault = str(error)
        if fault is not None:
            return _refused(call, Outcome.BAD_ARGUMENTS, f"wrong arguments for {call.name}: {fault}")
        use = self.use
        for spent, most, where in (
            (ready, use.calls_per_turn, "a turn"),
            (self.calls + ready, use.calls_per_episode, "an episode"),
        ):
            if most is not None and spent >= most:
                return _over(call, f"call limit: at most {most} call{'' if most == 1 else 's'} {where}")
        if use.episode_timeout_s is not None and self.seconds >= use.episode_timeout_s:
            return _over(call, _too_long("this episode", use.episode_timeout_s))
        return _Ready(call, tool, arguments)

    async def _side_by_side(self, jobs: Sequence[CallResult | _Ready], began: float) -> list[CallResult]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    job if isinstance(job, CallResult) else group.create_task(self._execute(job, began)) for job in jobs
                ]
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from several
        return [task if isinstance(task, CallResult) else task.result() for task in tasks]

    async def _execute(self, job: _Ready, began: float) -> CallResult:
        call, tool, arguments = job
        spent_s = time.monotonic() - began
        limit_s = self.use.call_timeout_s
        for budget_s, before_s, whose in (
            (self.use.turn_timeout_s, 0.0, "this turn"),
            (self.use.episode_timeout_s, self.seconds, "this episode"),
        ):
            if budget_s is not None and spent_s + before_s >= budget_s:  # the calls before it took it all
                self.calls -= 1
                return _over(call, _too_long(whose, budget_s))
            limit_s = limit_s if budget_s is None else min(limit_s, budget_s - before_s - spent_s)
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                result = await tool.execute(arguments)
        except ToolError as error:
            return self._shortened(CallResult(call, Outcome.ERROR, ToolResult(f"error: {result_text(str(error))}")))
        except TimeoutError:
            if not limit.expired():
                raise
            return _refused(call, Outcome.TIMEOUT, f"time limit: the call took more than {limit_s:.3g} s")
        if not isinstance(result, ToolResult):
            raise TypeError(f"tool {tool.name!r} returned {result!r:.120}; expected a ToolResult")
        return self._shortened(CallResult(call, Outcome.OK, result))

    def _shortened(self, done: CallResult) -> CallResult:
        whole = result_text(done.result.text)
        text = shorten(whole, self.use.output_bytes)
        result = ToolResult(text, done.result.reward, done.result.metadata)
        return CallResult(done.call, done.outcome, result, shortened=text != whole)


def _refused(call: Call | BadCall, outcome: Outcome, text: str) -> CallResult:
    return CallResult(call, outcome, ToolResult(f"error: {result_text(text)}"))


def _over(call: Call, text: str) -> CallResult:
    return _refused(call, Outcome.OVER_LIMIT, f"{text}; this call was not run")


def _too_long(whose: str, budget_s: float) -> str:
    return f"time limit: the calls of {whose} have taken {budget_s:g} s"
