"""Calls of any content come back as they were meant; no text at all makes a format raise or forget its place."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rllib_agentic.tools.calling import CALLING, Call
from rllib_agentic.tools.calling.scan import read_turn
from rllib_agentic.tools.calling.strict_json import JsonFault, decode
from rllib_agentic.tools.output import shorten

NAMES = ("search", "python", "Finish")
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
WORDS = "<think> </think> <tool_call> </tool_call> <search> </search> <search/> ```output Action: search"
MARKS = st.sampled_from(
    [
        *WORDS.split(),
        *("[", "]", "(", ")", "{", "}", ",", "[{", "\\"),
        *('{"name": ', '"search"', '"arguments": ', "```python\n", "\n```\n", "Action Input:", "\nObservation:"),
        *("Final Answer:", "\n", " ", "\r\n", "\x00"),
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(TEXT, VALUES, max_size=3)


def read(calling: Any, text: str, **options: Any) -> Any:
    call_format = CALLING.parse(calling)
    return read_turn(text, lambda t, at: call_format.find(t, at, NAMES), **options)


@given(ARGUMENTS, ARGUMENTS, st.booleans(), st.sampled_from([None, 2]))
@settings(max_examples=40, deadline=None)
def test_json_calls_come_back(first: dict, second: dict, escaped: bool, indent: int | None) -> None:
    payloads = [
        json.dumps({"name": "search", "arguments": arguments}, ensure_ascii=escaped, indent=indent)
        for arguments in (first, second)
    ]
    expected = (Call("search", first), Call("search", second))
    tagged = "\nand ".join(f"<tool_call>\n{payload}\n</tool_call>" for payload in payloads)
    assert read("hermes", f"So {tagged}").calls == expected
    assert read("template", f"<tool_call>[{', '.join(payloads)}]</tool_call>").calls == expected
    assert read("function", "\n".join(payloads)).calls == expected


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), VALUES, max_size=3))
@settings(max_examples=40, deadline=None)
def test_python_calls_come_back(arguments: dict) -> None:
    written = ", ".join(f"{'x' + name}={value!r}" for name, value in arguments.items())
    (call,) = read("code_as_action", f"```python\nsearch({written})\n```").calls
    assert call == Call("search", {"x" + name: value for name, value in arguments.items()})


@given(st.text(st.characters(codec="utf-8", exclude_characters="`\r"), max_size=60))
@settings(max_examples=40, deadline=None)
def test_code_comes_back(code: str) -> None:
    reading = read("fenced", f"So:\n```python\n{code}\n```\n```output")
    assert reading.calls == (Call("python", {"code": code}),)


@given(st.lists(MARKS | TEXT, max_size=14).map("".join), st.booleans(), st.sampled_from(["draft", "run"]))
@settings(max_examples=150, deadline=None)
def test_any_text_is_read(text: str, starts_in_reasoning: bool, in_reasoning: str) -> None:
    for calling in CALLING:
        reading = read(calling, text, starts_in_reasoning=starts_in_reasoning, in_reasoning=in_reasoning)
        assert reading.drafts >= 0 and len(reading.said) <= len(text)
        found = CALLING.parse(calling).find(text, 0, NAMES)
        assert found is None or (0 <= found.start < found.end <= len(text))


@given(st.text(max_size=80) | st.lists(MARKS, max_size=12).map("".join))
@settings(max_examples=100, deadline=None)
def test_strict_json_reads_what_json_reads_or_says_why_not(text: str) -> None:
    try:
        value = decode(text)
    except JsonFault:
        return
    assert value == json.loads(text, strict=False)


@given(st.text(st.characters(codec="utf-8"), max_size=80), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_shortened_texts_keep_their_ends(text: str, most: int) -> None:
    short = shorten(text, most)
    if len(text.encode()) <= most:
        assert short == text
        return
    head, _, rest = short.partition("\n[")
    kept = len(head.encode())
    assert text.startswith(head) and kept <= (most + 1) // 2 and "bytes left out]\n" in rest
    assert text.endswith(rest.rpartition("bytes left out]\n")[2])


@given(st.dictionaries(st.from_regex(r"x[a-z]{0,4}", fullmatch=True), VALUES, max_size=3))
@settings(max_examples=40, deadline=None)
def test_what_a_format_writes_it_reads(arguments: dict) -> None:
    for calling in ("hermes", "template", "function", "code_as_action", "react", {"type": "xml", "payload": "json"}):
        (call,) = read(calling, f"So:\n{CALLING.parse(calling).write('search', arguments)}").calls
        assert call == Call("search", arguments)
    code = {"code": "print(1)\nprint(2)"}
    for fenced in ("fenced", {"type": "fenced", "pause": "block"}):
        assert read(fenced, CALLING.parse(fenced).write("python", code)).calls == (Call("python", code),)
    plain = {"query": "cats < dogs", "k": 3, "deep": None}
    texts = {"query": "cats < dogs", "k": "3", "deep": "null"}
    assert read("xml", CALLING.parse("xml").write("search", plain)).calls == (Call("search", texts, as_text=True),)
