"""Environments that are used through tools: the author writes tools, tasks and grading, the rest is here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError
from rllib_agentic.tools.calling.format import Output
from rllib_agentic.tools.function_tool import FunctionTool
from rllib_agentic.tools.loop import run_on_tool_loop
from rllib_agentic.tools.running import CallResult, CallRunner, Outcome
from rllib_agentic.tools.schema import tool_definition
from rllib_agentic.tools.tool import Tool
from rllib_agentic.tools.turn_reader import Heard, TurnReader
from rllib_agentic.tools.use import ToolUse
from rllib_agentic.trajectory.message import Message

_CUT = "error: the call was cut off before its end; it was not run"
_REMINDER = "There was neither a call nor an answer. Call a tool, or answer within <answer> and </answer>."


@dataclass(frozen=True, slots=True)
class Grade:
    """What an answer, or the state after some calls, is worth.

    Attributes:
        reward: added to what the tools gave in this turn.
        success: whether the task is solved.
        ended: whether the episode ends here.
        text: what the agent hears, beside the outputs of its calls; ``""`` for nothing.
        rewards: named components of ``reward``.
        metrics: numbers to log.
    """

    reward: float = 0.0
    success: bool = False
    ended: bool = True
    text: str = ""
    rewards: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


class ToolEnv(ABC):
    """An environment (see :class:`~rllib_agentic.envs.env.Env`) whose agent calls tools and answers in the end.

    A subclass writes :meth:`schema` (with :meth:`describe`), :meth:`begin` and :meth:`grade`, and its tools as methods
    with ``@tool``. It may overwrite :meth:`answer_of`, :meth:`after_calls`, :meth:`state_key`, :meth:`instructions` and
    :meth:`end`. One object is one session: tools find the episode's state on ``self``. Hooks and ``step`` run in one
    thread at a time; a tool function that is not async runs in another one, while ``step`` waits for it (unless it
    passed its time limit, and goes on).

    Args:
        tools: what can be called; the class's own ``@tool`` methods where None.
        use: call format, budgets, and how outputs come back.

    Raises:
        InputError: a schema that is none, two tools of one name, settings that do not fit.

    Example:
        >>> from rllib_agentic.tools import tool
        >>> class Sums(ToolEnv):
        ...     def schema(self):
        ...         return self.describe("sums", splits={"train": 9}, splits_hash="1")
        ...     def begin(self, split, index, seed):
        ...         self.goal = index + index
        ...         return Observation((Message("user", f"What is {index} + {index}?"),))
        ...     @tool
        ...     def add(self, a: int, b: int) -> int:
        ...         '''Add two numbers.'''
        ...         return a + b
        ...     def grade(self, answer):
        ...         right = answer == str(self.goal)
        ...         return Grade(reward=float(right), success=right)
        >>> env = Sums()
        >>> _ = env.reset("train", 3, seed=0)
        >>> result = env.step('<tool_call>{"name": "add", "arguments": {"a": 3, "b": 3}}</tool_call>')
        >>> print(result.observation.messages[0].content)
        <tool_response>
        6
        </tool_response>
        >>> env.step("6").success
        True
    """

    def __init__(self, tools: Sequence[Tool] | None = None, use: ToolUse | None = None) -> None:
        self.use = use or ToolUse()
        self._all_tools: tuple[Tool, ...] = tuple(own_tools(self) if tools is None else tools)
        self._unused_runner = CallRunner(self._all_tools, self.use)  # checking many tools takes a while: once is enough
        self._tools = self._all_tools
        self._runner = copy(self._unused_runner)
        self._playing = False
        self._reader = self._new_reader()

    # --- what a subclass writes ---------------------------------------------------------------------------------

    @abstractmethod
    def schema(self) -> EnvSchema:
        """Splits, limits and formats; make it with :meth:`describe`."""

    @abstractmethod
    def begin(self, split: str, index: int, seed: int) -> Observation:
        """Begin the task: its messages, without a word about how to call tools."""

    @abstractmethod
    def grade(self, answer: str) -> Grade:
        """What an answer is worth. It is the marked answer (see :meth:`answer_of`), or else all that was said."""

    def answer_of(self, said: str) -> str | None:
        """The marked answer in what was said beside calls and reasoning; the call format knows its mark."""
        return self.use.calling.answer_of(said)

    def after_calls(self, results: Sequence[CallResult]) -> Grade | None:
        """A grade right after a turn's calls, for tasks that a state solves and not an answer; None to go on."""
        return None

    def state_key(self) -> str | None:
        """See :class:`~rllib_agentic.envs.env.Observation`; None where states are not compared."""
        return None

    def instructions(self) -> str:
        """What the system message says about the tools and about how to call them; ``""`` for nothing."""
        return self.use.calling.instructions(self._tools)

    def end(self) -> None:  # noqa: B027  (most have nothing to free)
        """Free what the episode holds. Called at every reset and close, also without an episode; never raises."""

    # --- what a subclass uses -----------------------------------------------------------------------------------

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What can be called now."""
        return self._tools

    def use_tools(self, tools: Sequence[Tool]) -> None:
        """Set the tools of this episode; for :meth:`begin`, where a task has only some of the environment's tools.

        Raises:
            InputError: as the constructor.
        """
        self._tools = tuple(tools)
        self._runner = CallRunner(self._tools, self.use)

    def describe(
        self,
        name: str,
        *,
        splits: Mapping[str, int],
        splits_hash: str,
        version: str = "1",
        reward_range: tuple[float, float] = (0.0, 1.0),
        max_turns: int = 10,
    ) -> EnvSchema:
        """The schema, with all tools; arguments as in :class:`~rllib_agentic.envs.env.EnvSchema`.

        Raises:
            InputError: there is no tool.
        """
        tools = self._all_tools
        if not tools:
            raise InputError(f"{name}: no tool; give ToolEnv some, or write methods with @tool")
        names = [tool.name for tool in tools]
        return EnvSchema(
            name=name,
            version=version,
            splits=splits,
            splits_hash=splits_hash,
            action_format=self.use.calling.instructions(tools) or "Calls as the model's chat template writes them.",
            lists_actions=False,
            tools=tuple(tool_definition(tool) for tool in tools),
            tools_in_template=self.use.calling.in_template,
            stop_strings=self.use.stop_strings(names),
            reward_range=reward_range,
            max_turns=max_turns,
        )

    # --- the environment ----------------------------------------------------------------------------------------

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """See :class:`~rllib_agentic.envs.env.Env`."""
        self.end()
        self._tools = self._all_tools
        self._runner = copy(self._unused_runner)
        first = self.begin(split, index, seed)
        self._playing = True
        self._reader = self._new_reader()
        messages = _with_instructions(first.messages, self.instructions())
        return replace(first, messages=messages, state_key=first.state_key or self.state_key())

    def step(self, action: str) -> StepResult:
        """Read the turn, run its calls or grade its answer. See ``docs/tools.md`` for the rules.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
            Exception: whatever a tool raised that is no ToolError; the episode is invalid.
        """
        if not self._playing:
            raise RuntimeError(f"{type(self).__name__}: no episode is running; call reset")
        try:
            return self._turn(action)
        except BaseException:
            self._playing = False
            raise

    def close(self) -> None:
        """See :class:`~rllib_agentic.envs.env.Env`."""
        self._playing = False
        self.end()

    def _turn(self, action: str) -> StepResult:
        heard = self._reader.read(action)
        reading, use = heard.reading, self.use
        answer = self.answer_of(reading.said)
        counts = dict.fromkeys(_METRICS, 0.0) | {"tool_draft": float(reading.drafts)}
        if reading.calls:
            counts["answer_with_call"] = float(answer is not None)
            return self._run(heard, counts)
        if reading.cut and not heard.paused:
            counts["tool_cut"] = 1.0
            return self._go_on((Message("user", _CUT),), counts)
        if answer is None and heard.paused:
            counts["pause_without_call"] = 1.0
            return self._go_on((_resume(""),), counts)
        if answer is None and use.without_call == "remind":
            counts["no_call"] = 1.0
            return self._go_on((Message("user", _REMINDER),), counts)
        grade = self.grade(reading.said if answer is None else answer)
        return self._result((), grade, 0.0, counts)

    def _run(self, heard: Heard, counts: dict[str, float]) -> StepResult:
        results = run_on_tool_loop(self._runner.run(heard.reading.calls))
        for done in results:
            counts[done.outcome] += 1.0
            counts["tool_shortened"] += float(done.shortened)
            for name, value in done.result.metadata.get("metrics", {}).items():
                counts[name] = counts.get(name, 0.0) + float(value)
        paid = sum(done.result.reward or 0.0 for done in results)
        grade = self.after_calls(results)
        if self.use.spent == "ignore" and heard.paused and all(done.outcome is Outcome.OVER_LIMIT for done in results):
            messages: tuple[Message, ...] = (_resume(""),)
        else:
            outputs = [Output(done.call.name, done.result.text) for done in results]
            inline = self.use.observation == "continue"
            calling = self.use.calling
            messages = (_resume(calling.inline(outputs)),) if inline else calling.messages(outputs)
        return self._result(messages, grade or Grade(ended=False), paid, counts)

    def _new_reader(self) -> TurnReader:
        return TurnReader(self.use, [tool.name for tool in self._tools])

    def _go_on(self, messages: tuple[Message, ...], counts: dict[str, float]) -> StepResult:
        return self._result(messages, Grade(ended=False), 0.0, counts)

    def _result(
        self, messages: tuple[Message, ...], grade: Grade, paid: float, counts: Mapping[str, float]
    ) -> StepResult:
        if grade.text or not messages:
            messages += (Message("user", grade.text or ("The episode has ended." if grade.ended else "Go on.")),)
        if grade.ended:
            self._playing = False
        return StepResult(
            Observation(messages, state_key=self.state_key()),
            reward=grade.reward + paid,
            terminated=grade.ended,
            success=grade.success,
            rewards={**({"tools": paid} if paid else {}), **grade.rewards},
            metrics={**counts, **grade.metrics},
        )


_METRICS = (
    *Outcome,
    "tool_draft",
    "tool_cut",
    "tool_shortened",
    "answer_with_call",
    "pause_without_call",
    "no_call",
)


def own_tools(owner: Any) -> list[FunctionTool]:
    """The tools that an object's class makes of methods by ``@tool``, as they are defined, base classes first."""
    names = dict.fromkeys(
        name
        for cls in reversed(type(owner).__mro__)
        for name, value in vars(cls).items()
        if isinstance(value, FunctionTool)
    )
    return [found for name in names if isinstance(found := getattr(owner, name), FunctionTool)]


def _resume(text: str) -> Message:
    return Message("tool", text, continues=True)


def _with_instructions(messages: Sequence[Message], instructions: str) -> tuple[Message, ...]:
    if not instructions:
        return tuple(messages)
    if messages and messages[0].role == "system":
        first = messages[0]
        return (replace(first, content=f"{first.content}\n\n{instructions}"), *messages[1:])
    return (Message("system", instructions), *messages)
