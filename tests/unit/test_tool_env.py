"""A tool environment: budgets, failures, rewards, and the session protocol.

1. A ToolError is an observation; every other exception ends the episode as invalid.
2. Budgets stop calls, and the agent is told which one; what cannot run uses up none.
3. Every outcome has a metric, and every metric is there in every turn.
4. Bad tools are refused when the environment is made.
"""

import asyncio
from functools import partial
from typing import Any

import pytest
from tool_desk import Desk, RawTool, call, outputs, returns

from rllib_agentic.envs.checker import check_env
from rllib_agentic.envs.local import LocalClient
from rllib_agentic.envs.registry import _arguments_model
from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.tools import ToolUse, tool
from rllib_agentic.tools.running import Outcome
from rllib_agentic.trajectory import Message, Task


def begun(**use: Any) -> Desk:
    env = Desk(**use)
    env.reset("train", 0, 0)
    return env


def test_a_tool_error_is_an_observation() -> None:
    result = begun().step(call("refuse"))
    assert outputs(result.observation.messages) == ["error: the desk is closed"]
    assert not result.terminated and result.metrics["tool_error"] == 1.0 and result.metrics["tool_ok"] == 0.0


@pytest.mark.parametrize("how", ["key", "runtime", "timeout"])
@pytest.mark.parametrize("order", ["in_order", "side_by_side"])
def test_any_other_exception_ends_the_episode_as_invalid(how: str, order: str) -> None:
    async def play() -> None:
        client = LocalClient(partial(Desk, order=order))
        session = await client.create(Task("desk", "train", 0))
        with pytest.raises(InfrastructureError) as failure:
            await session.step(call("echo", text="a") + call("break_down", how=how))
        assert failure.value.kind == "env_error" and how in str(failure.value)
        await client.aclose()

    asyncio.run(play())


def test_a_function_says_by_value_error_that_an_argument_is_wrong() -> None:
    assert outputs(begun().step(call("break_down", how="value")).observation.messages) == ["error: ValueError: value"]

    @tool(errors=())
    def strict() -> str:
        """Nothing is the agent's fault."""
        raise ValueError("bug")

    env = Desk([strict])
    env.reset("train", 0, 0)
    with pytest.raises(ValueError, match="bug"):
        env.step(call("strict"))
    with pytest.raises(RuntimeError, match="no episode is running"):
        env.step("7")


@pytest.mark.parametrize("name", ["rest", "block"])
def test_a_call_that_takes_too_long_is_given_up(name: str) -> None:
    env = begun(call_timeout_s=0.05)
    result = env.step(call(name, seconds=0.5))
    assert outputs(result.observation.messages) == ["error: time limit: the call took more than 0.05 s"]
    assert result.metrics["tool_timeout"] == 1.0 and env.step("7").success


def test_the_episodes_time_budget() -> None:
    env = begun(episode_timeout_s=0.5)
    first = env.step(call("rest", seconds=0.0) + call("rest", seconds=60.0) + call("rest", seconds=0.0))
    one, two, three = outputs(first.observation.messages)
    assert one == "rested 0.0" and "took more than 0." in two and three.startswith("error: time limit: the calls of")
    later = env.step(call("rest", seconds=0.0))
    assert later.metrics["tool_over_limit"] == 1.0 and env.ran == ["rest 0.0", "rest 60.0"]


def test_the_turns_time_budget() -> None:
    env = begun(turn_timeout_s=0.5)
    first = env.step(call("rest", seconds=60.0) + call("rest", seconds=0.0))
    given_up, refused = outputs(first.observation.messages)
    assert "took more than 0." in given_up and refused.startswith(
        "error: time limit: the calls of this turn have taken 0.5 s"
    )
    assert env.step(call("rest", seconds=0.0)).metrics["tool_ok"] == 1.0


def test_the_episodes_call_budget_counts_what_ran() -> None:
    env = begun(calls_per_episode=2)
    first = env.step(call("nope") + "<tool_call>{</tool_call>" + call("add", a="x") + call("add", a=1, b=1))
    assert [first.metrics[o] for o in ("tool_unknown", "tool_parse_error", "tool_bad_arguments", "tool_ok")] == [1] * 4
    second = env.step(call("add", a=2, b=2) + call("add", a=3, b=3))
    assert outputs(second.observation.messages)[0] == "4"
    assert outputs(second.observation.messages)[1] == (
        "error: call limit: at most 2 calls an episode; this call was not run"
    )
    assert env.reset("train", 1, 0) and env.step(call("add", a=1, b=1)).metrics["tool_ok"] == 1.0


def test_side_by_side_calls_overlap_and_answer_in_their_order() -> None:
    class Meeting(Desk):
        @tool
        async def wait(self) -> str:
            """Wait until somebody knocks."""
            self.knocked = asyncio.Event()
            await self.knocked.wait()
            return "somebody knocked"

        @tool
        async def knock(self) -> str:
            """Knock."""
            self.knocked.set()
            return "knocked"

    env = Meeting(order="side_by_side")
    env.reset("train", 0, 0)
    result = env.step(call("wait") + call("knock"))
    assert outputs(result.observation.messages) == ["somebody knocked", "knocked"]


def test_rewards_and_metrics_of_tools() -> None:
    result = begun().step(call("paid", reward=0.25) + call("paid", reward=-0.5))
    assert result.reward == -0.25 and dict(result.rewards) == {"tools": -0.25} and result.metrics["coins"] == 4.0
    answered = begun().step("7")
    assert answered.reward == 1.0 and dict(answered.rewards) == {"answer": 1.0}


@pytest.mark.parametrize("text", ["7", "", call("add", a=1, b=2), "<tool_call>", "<think>", "Sure!"])
def test_every_metric_is_there_in_every_turn(text: str) -> None:
    metrics = begun(without_call="remind").step(text).metrics
    rest = ("tool_draft", "tool_cut", "tool_shortened", "answer_with_call", "pause_without_call", "no_call")
    assert set(metrics) == {*Outcome, *rest} and all(isinstance(value, float) for value in metrics.values())


def test_a_turn_without_call_is_the_answer_or_a_lapse() -> None:
    assert begun().step("<think>5?</think> 7 ").success
    lapse = begun(without_call="remind")
    result = lapse.step("It is 7.")
    assert (
        not result.terminated
        and result.metrics["no_call"] == 1.0
        and "<answer>" in result.observation.messages[0].content
    )
    assert lapse.step("<answer>7</answer>").success


def test_an_answer_within_open_reasoning_is_none() -> None:  # RW03
    assert not begun().step("<think>7 <answer>7</answer>").success


def test_instructions_join_the_system_message() -> None:
    first = Desk().reset("train", 0, 0)
    assert [m.role for m in first.messages] == ["system", "user"]
    assert '"name": "add"' in first.messages[0].content and "<tool_call>" in first.messages[0].content
    template = Desk(calling="template")
    assert [m.role for m in template.reset("train", 0, 0).messages] == ["user"]
    schema = template.schema()
    assert schema.tools_in_template and [t["function"]["name"] for t in schema.tools][:2] == ["add", "echo"]
    message, other = template.step(call("add", a=1, b=2) + call("nope")).observation.messages
    assert message == Message("tool", "3", name="add") and other.role == "tool" and other.name == "nope"


def test_tools_of_one_task() -> None:
    class Narrow(Desk):
        def begin(self, split: str, index: int, seed: int) -> Any:
            if index == 1:
                self.use_tools([self.add])
            return super().begin(split, index, seed)

    env = Narrow()
    assert "echo" not in env.reset("train", 1, 0).messages[0].content
    assert env.step(call("echo", text="a")).metrics["tool_unknown"] == 1.0
    assert "echo" in env.reset("train", 0, 0).messages[0].content
    assert env.step(call("echo", text="a")).metrics["tool_ok"] == 1.0


@pytest.mark.parametrize(
    ("tools", "says"),
    [
        ([RawTool({"type": "objekt"})], "is no JSON-Schema: at type: 'objekt'"),
        ([RawTool({"properties": {"a": {"minimum": "x"}}})], "at properties.a.minimum"),
        ([RawTool("x")], "must be a JSON-Schema, a mapping"),
        ([RawTool({"type": "array"})], "must describe an object"),
        ([RawTool({"properties": {"a": {"$ref": "#/$defs/b"}}})], "leads nowhere"),
        ([RawTool({"properties": {"a": {"$ref": "https://example.com/schema"}}})], "leads nowhere"),
        ([RawTool({}), RawTool({})], "two tools are called 'raw'"),
        ([RawTool({}, name="a b")], "cannot be a tool's name"),
        ([RawTool({}, name="")], "cannot be a tool's name"),
        ([print], "expected a Tool"),
    ],
)
def test_bad_tools_are_refused_at_the_start(tools: list[Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Desk(tools)


def test_a_schema_may_refer_to_its_own_parts() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/a~1b"}}}
    env = Desk([RawTool({"properties": {"list": {"$ref": "#/$defs/a~1b"}}, "$defs": {"a/b": node}})])
    env.reset("train", 0, 0)
    assert env.step(call("raw", list={"next": {"next": {}}})).metrics["tool_ok"] == 1.0
    assert env.step(call("raw", list={"next": {"next": 3}})).metrics["tool_bad_arguments"] == 1.0


def test_no_tools_and_bad_settings_are_refused_at_the_start() -> None:
    with pytest.raises(InputError, match="no tool"):
        Desk([]).schema()
    for use, says in (
        ({"calling": "hermess"}, "Did you mean 'hermes'"),
        ({"calling": {"type": "fenced", "pauze": "block"}}, "calling.pauze: unknown key"),
        ({"calls_per_turns": 1}, "Did you mean 'calls_per_turn'"),
        ({"observation": "continue", "calling": "function"}, "needs a call format with a stop string"),
        ({"spent": "ignore"}, "needs observation 'continue'"),
        ({"calls_per_turn": 0}, "greater than or equal to 1"),
    ):
        with pytest.raises(InputError, match=says):
            Desk(**use)


def test_yaml_reaches_the_settings_of_a_registered_environment() -> None:
    class Registered(Desk):
        def __init__(self, use: ToolUse | None = None) -> None:
            super().__init__()

    given = {"use": {"calling": {"type": "xml", "output": "information"}, "calls_per_turn": 1}}
    arguments = _arguments_model(Registered).model_validate(given)
    assert arguments.use.stop_strings(["search"]) == ("</search>",)  # type: ignore[attr-defined]


def test_stop_strings_follow_from_format_and_budget() -> None:
    assert Desk().schema().stop_strings == ()  # several calls a turn: the agent ends its turn itself
    assert Desk(calls_per_turn=1).schema().stop_strings == ("</tool_call>",)
    assert Desk(observation="continue").schema().stop_strings == ("</tool_call>",)
    assert Desk(calling="fenced", observation="continue").schema().stop_strings == ("```output",)
    assert "</add>" in Desk(calling="xml", calls_per_turn=1).schema().stop_strings


@pytest.mark.parametrize("use", [{}, {"calling": "xml", "without_call": "remind"}, {"observation": "continue"}])
def test_tool_environments_pass_the_checker(use: dict[str, Any]) -> None:
    assert check_env(partial(Desk, **use), processes=not use) == []


def test_close_frees_once_more_and_never_raises() -> None:
    env = begun()
    env.close()
    env.close()
    assert env.freed == 3
    with pytest.raises(RuntimeError):
        env.step("7")
    assert env.reset("train", 0, 0) and env.step("7").success


def test_a_result_that_is_none_is_a_bug_and_not_an_observation() -> None:
    class Wrong(RawTool):
        async def execute(self, arguments: Any) -> Any:
            return "text"

    env = Desk([Wrong({})])
    env.reset("train", 0, 0)
    with pytest.raises(TypeError, match="expected a ToolResult"):
        env.step(call("raw"))


def test_many_sessions_share_the_loop() -> None:
    async def play() -> list[str]:
        client = LocalClient(Desk)
        sessions = [await client.create(Task("desk", "train", 0)) for _ in range(4)]
        results = await asyncio.gather(*(s.step(call("rest", seconds=0.05)) for s in sessions))
        await client.aclose()
        return [outputs(result.observation.messages)[0] for result in results]

    assert asyncio.run(play()) == ["rested 0.05"] * 4


def test_arguments_come_in_the_functions_types() -> None:
    seen: list[Any] = []

    @tool
    def take(count: int, ratio: float, names: tuple[str, ...] = ()) -> None:
        """Take."""
        seen.append((count, ratio, names))

    env = Desk([take])
    env.reset("train", 0, 0)
    assert outputs(env.step(call("take", count=3.0, ratio=1, names=["a"])).observation.messages) == ["(no output)"]
    assert seen == [(3, 1.0, ("a",))] and isinstance(seen[0][0], int)
    assert returns("x").parameters["properties"] == {}
