"""Tool parsing: the cases TP01 to TP20, each an input and what is right.

1. One result a call, by position; nothing is dropped in silence, nothing runs that was not meant.
2. A text that cannot be read is an error that the agent hears, counted, and the episode goes on.
3. A call that is cut off is neither run nor a format error.
"""

import json
from typing import Any

import pytest
from tool_desk import Desk, RawTool, call, outputs, returns

from rllib_agentic.envs.env import StepResult
from rllib_agentic.tools.calling import CALLING, BadCall, Call, Reading
from rllib_agentic.tools.calling.scan import read_turn
from rllib_agentic.tools.calling.strict_json import JsonFault, decode
from rllib_agentic.tools.schema import ArgumentsCheck


def read(text: str, calling: Any = "hermes", names: tuple[str, ...] = ("f", "run"), **options: Any) -> Reading:
    call_format = CALLING.parse(calling)
    return read_turn(text, lambda t, at: call_format.find(t, at, names), **options)


def plain(calls: tuple[Call | BadCall, ...]) -> list[Any]:
    return [{"name": c.name, "arguments": dict(c.arguments)} if isinstance(c, Call) else "error" for c in calls]


def play(text: str, env: Desk | None = None, **use: Any) -> StepResult:
    env = env or Desk(**use)
    env.reset("train", 0, 0)
    return env.step(text)


def run(code: str) -> str:
    return call("run", code=code)


@pytest.mark.parametrize(
    ("text", "calls", "drafts"),
    [
        (f"<think>maybe {run('1')} first</think>\n{run('2')}", ["2"], 1),
        (f"maybe {run('1')} first</think>\n{run('2')}", ["2"], 1),
        (f"<think>a</think>b<think>{run('1')}</think>{run('2')}", ["2"], 1),
        (f"<think>never closed {run('1')}", [], 1),
        (f"{run('1')}<think>then {run('2')}", ["1"], 1),
        (run("</think>"), ["</think>"], 0),
        (run("<think>"), ["<think>"], 0),
        ("<think><tool_call>{broken</tool_call><tool_call>{</think>ok", [], 2),
    ],
)
def test_tp01_calls_in_the_reasoning_are_drafts(text: str, calls: list[str], drafts: int) -> None:
    reading = read(text)
    assert plain(reading.calls) == [{"name": "run", "arguments": {"code": code}} for code in calls]
    assert reading.drafts == drafts


def test_tp01_reasoning_that_the_prompt_opened_and_reasoning_that_may_call() -> None:
    text = f"well {run('1')} or"
    assert read(text, starts_in_reasoning=True) == Reading(drafts=1, reasoning_open=True)
    assert len(read(text).calls) == 1
    inside = read(f"<think>hm {text}</think>so", in_reasoning="run")
    assert len(inside.calls) == 1 and inside.said == "so" and inside.drafts == 0


def test_tp03_braces_and_quotes_in_code_are_the_codes_own() -> None:
    code = "d={'a':{'b':[1,2]}}\nprint(f\"{d['a']}\")"
    text = f'<tool_call>\n{{"name":"python","arguments":{{"code":{json.dumps(code)}}}}}\n</tool_call>'
    assert plain(read(text).calls) == [{"name": "python", "arguments": {"code": code}}]
    tagged = "s = '</tool_call>' + '}}' + '<tool_call>'"
    assert plain(read(run(tagged)).calls) == [{"name": "run", "arguments": {"code": tagged}}]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name":"f","arguments":{"a":1,}}</tool_call>',
        '<tool_call>{"name":"f","arguments":{a:1}}</tool_call>',
        "<tool_call>{'name':'f','arguments':{}}</tool_call>",
        '<tool_call>{"name":"sh","arguments":{"cmd":"ls"}</tool_call>',  # TP06
        '<tool_call>{"name":"f","arguments":{"a":1}}{"name":"f","arguments":{"a":1}}</tool_call>',  # TP13
        "<tool_call></tool_call>",
        "<tool_call>[]</tool_call>",
        "<tool_call>null</tool_call>",
        '<tool_call>{"arguments":{}}</tool_call>',
        '<tool_call>{"name":7,"arguments":{}}</tool_call>',
        '<tool_call>{"name":"echo","text":"lost"}</tool_call>',
        '<tool_call>{"name":"add","arguments":{"a":1,"b":2}} <tool_call>{"nothing"</tool_call>',
    ],
)
def test_tp05_tp06_tp13_what_cannot_be_read_is_an_error_and_the_episode_goes_on(text: str) -> None:
    env = Desk()
    result = play(text, env)
    assert env.ran == [] and not result.terminated and not result.truncated
    heard = outputs(result.observation.messages)
    assert len(heard) >= 1 and all(one.startswith("error: parse error: ") for one in heard)
    assert result.metrics["tool_parse_error"] == len(heard) and result.metrics["tool_ok"] == 0
    assert env.step("7").success


def test_tp07_all_calls_run_in_order_up_to_the_limit() -> None:
    text = call("add", a=1, b=2) + "\n" + call("add", a=3, b=4)
    assert outputs(play(text).observation.messages) == ["3", "7"]
    env = Desk(calls_per_turn=1)
    result = play(text, env)
    first, second = outputs(result.observation.messages)
    assert first == "3" and second.startswith("error: call limit") and env.ran == ["add 1 2"]
    assert result.metrics["tool_over_limit"] == 1.0


def test_tp08_one_result_a_call_by_position() -> None:
    text = call("add", a=1, b=2) + '<tool_call>{"name":"add","arguments":{"a":</tool_call>' + call("nope")
    first, second, third = outputs(play(text).observation.messages)
    assert first == "3" and "parse error" in second and "unknown tool 'nope'" in third


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a":1}', {"a": 1}),
        (None, {}),
        ("missing", {}),
        ([1], "error"),
        (5, "error"),
        ('"x"', "error"),
        (True, "error"),
        ("[1]", "error"),
        ("", "error"),
        (False, "error"),
        ([], "error"),
        (0, "error"),
    ],
)
def test_tp09_arguments_of_any_payload(value: Any, expected: Any) -> None:
    payload = {"name": "f"} if value == "missing" else {"name": "f", "arguments": value}
    (found,) = read(f"<tool_call>{json.dumps(payload)}</tool_call>").calls
    assert ("error" if isinstance(found, BadCall) else dict(found.arguments)) == expected


def test_tp10_escaped_and_raw_unicode_are_one_value() -> None:
    for text in ('{"name":"s","arguments":{"q":"\\u4e2d\\ud83d\\ude00"}}', '{"name":"s","arguments":{"q":"中😀"}}'):
        assert plain(read(f"<tool_call>{text}</tool_call>").calls) == [{"name": "s", "arguments": {"q": "中😀"}}]
    (half,) = read('<tool_call>{"name":"s","arguments":{"q":["\\ud83d"]}}</tool_call>').calls
    assert isinstance(half, BadCall) and "surrogate" in half.fault


def test_tp12_real_newlines_in_strings_are_kept_as_written() -> None:
    text = '<tool_call>{"name":"python","arguments":{"code":"a=1\nprint(a)\t# \x01"}}</tool_call>'
    assert plain(read(text).calls) == [{"name": "python", "arguments": {"code": "a=1\nprint(a)\t# \x01"}}]


def test_tp13_doubled_payloads_and_names() -> None:
    doubled = '<tool_call>{"name":"f","arguments":{"a":1}}{"name":"f","arguments":{"a":1}}</tool_call>'
    (found,) = read(doubled).calls
    assert isinstance(found, BadCall) and "extra data" in found.fault
    result = play(call("addadd", a=1, b=2))
    assert outputs(result.observation.messages)[0].startswith("error: unknown tool 'addadd'. Did you mean 'add'?")
    assert result.metrics["tool_unknown"] == 1.0


def test_tp14_arguments_are_held_against_the_schema() -> None:
    schema = {
        "properties": {"n": {"type": "integer"}, "q": {"type": "string"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    check = ArgumentsCheck(RawTool(schema))
    given: list[dict[str, Any]] = [{"n": 3}, {"n": "3"}, {"q": "x"}, {"n": 3, "z": 1}, {"n": 3.0}, {"n": True}]
    faults = [check.fault(arguments) for arguments in given]
    assert [fault is None for fault in faults] == [True, False, False, False, True, False]  # 3.0: docs/tools.md
    for fault, name in zip(faults, ["", "'n'", "'n'", "'z'", "", "'n'"], strict=True):
        assert name in (fault or "")
    result = play(call("add", a=1, b="2"))
    (heard,) = outputs(result.observation.messages)
    assert heard.startswith("error: wrong arguments for add: argument 'b'") and not result.terminated
    assert result.metrics["tool_bad_arguments"] == 1.0


@pytest.mark.parametrize(
    "raw",
    [
        '{"cmd":"ls","cmd":"rm"}',
        '{"n":NaN}',
        '{"n":-Infinity}',
        '{"n":1e999}',
        '{"n":1' + "0" * 5000 + "}",
        '{"n":' + "[" * 5000 + "]" * 5000 + "}",
        '{"n":' + "[" * 200 + "]" * 200 + "}",
        '{"a":' * 300 + "1" + "}" * 300,
        '{"n":"\\ud800"}',
        '{"n":[["\\udfff"]]}',
    ],
)
def test_tp15_no_text_raises_anything_else_than_a_fault(raw: str) -> None:
    with pytest.raises(JsonFault):
        decode(raw)
    env = Desk()
    result = play(f'<tool_call>{{"name":"echo","arguments":{raw}}}</tool_call>', env)
    assert result.metrics["tool_parse_error"] == 1.0 and env.ran == []
    assert outputs(env.step(call("echo", text="alive")).observation.messages) == ["alive"]


@pytest.mark.parametrize(
    ("calling", "text"),
    [
        ("hermes", '<tool_call>{"name":"python","arguments":{"code":"for i in ra'),
        ("hermes", "<tool_call>"),
        ("hermes", '<tool_call>{"name":"add","arguments":{"a":1,"b":2}}'),
        ("hermes", '<tool_call>{"name":"add","arguments":{"a":1,"b":2}}</tool_c'),
        ("template", '<tool_call>{"name":"python","arguments":{"code":"for i in ra'),
        ("fenced", "So\n```python\nfor i in ra"),
        ("fenced", "```python"),
        ({"type": "fenced", "pause": "block"}, "```python\nprint(1)\n``"),
        ("xml", "<add>\n<a>1</a><b>"),
        ("react", "Thought: x\nAction: add[1"),
        ("react", "Thought: x\nAction:"),
        ("react", 'Action: add\nAction Input: {"a": 1, "b"'),
        ("react", "Action: add(a=1, b="),
        ("function", '{"thought": "x", "name": "add", "argum'),
        ("function", 'Text.\n```json\n{"thought": "x"'),
        ("code_as_action", "```python\nadd(1,"),
    ],
)
def test_tp17_a_call_that_is_cut_off_is_neither_run_nor_a_format_error(calling: Any, text: str) -> None:
    reading = read(text, calling, ("add", "python"))
    assert reading.cut and reading.calls == ()
    env = Desk(calling=calling)
    result = play(text, env)
    assert env.ran == [] and not result.terminated and result.reward == 0.0
    assert result.metrics["tool_cut"] == 1.0 and result.metrics["tool_parse_error"] == 0.0
    assert "cut off" in result.observation.messages[0].content


def test_tp18_calls_come_before_an_answer_in_the_same_turn() -> None:
    env = Desk()
    result = play(call("add", a=1, b=1) + "\n<answer>7</answer>", env)
    assert env.ran == ["add 1 1"] and not result.terminated and result.reward == 0.0 and env.answers == []
    assert result.metrics["answer_with_call"] == 1.0
    final = env.step("<answer> 7 </answer>")
    assert final.terminated and final.success and final.metrics["answer_with_call"] == 0.0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": "é"}, '{"b": 1, "a": "é"}'),
        (None, "(no output)"),
        (b"\xff", "\ufffd"),
        (3.5, "3.5"),
        (ValueError("x"), "error: ValueError: x"),
        ("", ""),
        (["中", {"k": (1, None)}], '["中", {"k": [1, null]}]'),
        ({1}, '"{1}"'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        ("\ud800 half", "\ufffd half"),
        (float("nan"), "NaN"),
    ],
)
def test_tp19_whatever_a_tool_gives_becomes_text(value: Any, text: str) -> None:
    result = play(call("give"), Desk([returns(value)]))
    assert outputs(result.observation.messages) == [text] and not result.terminated
    result.observation.messages[0].content.encode()


def test_tp19_a_huge_result_keeps_head_and_tail() -> None:
    result = play(call("give"), Desk([returns("é" * 50_000 + "end")], output_bytes=100))
    (heard,) = outputs(result.observation.messages)
    assert len(heard.encode()) < 200 and heard.startswith("éé") and heard.endswith("end") and "left out" in heard
    assert "\ufffd" not in heard and result.metrics["tool_shortened"] == 1.0
