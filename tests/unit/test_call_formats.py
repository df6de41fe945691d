"""Call formats: what each one reads, what it leaves alone, and how outputs come back."""

from typing import Any

import pytest
from tool_desk import Desk, returns

from rllib_agentic.components import parse_settings
from rllib_agentic.errors import InputError
from rllib_agentic.tools import tool
from rllib_agentic.tools.arguments import ArgumentsFault, bind_arguments
from rllib_agentic.tools.calling import CALLING, BadCall, Call
from rllib_agentic.tools.calling.format import Output
from rllib_agentic.tools.calling.scan import read_turn
from rllib_agentic.tools.schema import check_tools
from rllib_agentic.tools.use import ToolUse
from rllib_agentic.trajectory import Message

NAMES = ("search", "add", "api.move")


def read(calling: Any, text: str) -> Any:
    call_format = CALLING.parse(calling)
    return read_turn(text, lambda t, at: call_format.find(t, at, NAMES))


def brief(calls: Any) -> list[Any]:
    return ["error" if isinstance(c, BadCall) else (c.name, dict(c.arguments) or list(c.positional)) for c in calls]


BLOCK = {"type": "fenced", "pause": "block", "tool": "run"}


@pytest.mark.parametrize(
    ("calling", "text", "calls"),
    [
        ("fenced", "a ```python\nx = 1\n\nprint(x)\n```\n```output", [("python", {"code": "x = 1\n\nprint(x)"})]),
        ("fenced", "```python\na\n```\nso ```python\nb\n```\nand\n```output", [("python", {"code": "b"})]),
        ("fenced", "```python\na\n```output", [("python", {"code": "a"})]),
        ("fenced", "```python\na\n```\n", []),
        ("fenced", "```pythonic\na\n```\n```output", []),
        ("fenced", "```\na\n```\n```output", []),
        ("fenced", "```python\n```\n```output", [("python", {"code": ""})]),
        ("fenced", "```python\r\na\r\n```\r\n```output", [("python", {"code": "a"})]),
        (
            BLOCK,
            "```python\na\n```\nthen\n```python\nb ``` c\n```",
            [("run", {"code": "a"}), ("run", {"code": "b ``` c"})],
        ),
        (BLOCK, "```js\na\n```\n", []),
        ("xml", "<search> cats\nand dogs </search>", [("search", ["cats\nand dogs"])]),
        ("xml", "<search><query>a < b</query>\n<k>3</k></search>", [("search", {"query": "a < b", "k": "3"})]),
        ("xml", "<search><b>bold</b> move</search>", [("search", ["<b>bold</b> move"])]),
        ("xml", "<search><q>a</q><q>b</q></search>", ["error"]),
        ("xml", "<search/><add></add>", [("search", []), ("add", [])]),
        ("xml", "<other>x</other> <searches>x</searches>", []),
        ("xml", "<api.move>north</api.move>", [("api.move", ["north"])]),
        (
            {"type": "xml", "payload": "json"},
            '<add>{"a": 1}</add><add>1</add><add>{</add>',
            [("add", {"a": 1}), "error", "error"],
        ),
        ("react", "Thought: t\nAction: search[cats [big]]\n", [("search", ["cats [big]"])]),
        ("react", 'Thought 1: t\nAction 1: add {"a": 1}', [("add", {"a": 1})]),
        ("react", "action: add(a=1, b=[2])", [("add", {"a": 1, "b": [2]})]),
        ("react", 'Action: add\nAction Input: {"a": 1}\nObservation: 3', [("add", {"a": 1})]),
        ("react", "Action: search\nAction Input: two\nlines", [("search", ["two\nlines"])]),
        ("react", "Action: search two words", [("search", ["two words"])]),
        ("react", "Action:\nsearch[x]", [("search", ["x"])]),
        ("react", "Action: search\n", [("search", [])]),
        ("react", "Action: search[a]\nObservation: made up\nAction: search[b]", [("search", ["a"])]),
        ("react", "Action: search[a]\nThought: and\nAction: search[b]", [("search", ["a"]), ("search", ["b"])]),
        ("react", "Action: 42\nThought: hm", ["error"]),
        ("react", "Action: search[a\nThought: hm", ["error"]),
        ("react", 'Action: add {"a": 1} {"b": 2}', ["error"]),
        ("react", "I see. The Action: search[a] is good.", []),
        ("react", "Action: Finish[7]", []),
        ("function", '{"thought": "t", "name": "add", "arguments": {"a": 1}}', [("add", {"a": 1})]),
        ("function", 'Well:\n```json\n{"name": "add"}\n```\n', [("add", [])]),
        ("function", '[{"name": "add"}, {"name": "search"}]', [("add", []), ("search", [])]),
        ("function", '{"name": "add"}\n{"name": "search"}', [("add", []), ("search", [])]),
        ("function", '{"answer": 7}', []),
        ("function", 'The set {"name": "add"} is text.', []),
        ("function", "{'name': 'add'}", ["error"]),
        ({"type": "function", "name_key": "function_name"}, '{"function_name": "add", "arguments": {}}', [("add", [])]),
        ("code_as_action", "```python\n# t\nadd(1, b=-2.5)\n```", [("add", {"b": -2.5})]),
        (
            "code_as_action",
            "```python\nx = search('a')\nprint(search(query='b', k=None))\n```",
            [("search", ["a"]), ("search", {"query": "b", "k": None})],
        ),
        (
            "code_as_action",
            "```python\n'''thought'''\napi.move('n', ('a', {'k': [True]}))\n```",
            [("api.move", ["n", ["a", {"k": [True]}]])],
        ),
        ("code_as_action", "```python\nfor i in range(3): add(i)\n```", ["error"]),
        ("code_as_action", "```python\nadd(open('/etc/passwd').read())\n```", ["error"]),
        ("code_as_action", "```python\nadd(1\n```", ["error"]),
        ("code_as_action", "```python\nadd({1, 2})\nadd(b'x')\n```", ["error"]),
        ("code_as_action", "```python\nadd(1e999)\n```", ["error"]),
        ("code_as_action", "```python\nadd(**{'a': 1})\n```", ["error"]),
        ("code_as_action", "```python\n# nothing\n```", ["error"]),
        ("code_as_action", "```python\nadd(" + "(" * 300 + "1" + ")" * 300 + ")\n```", ["error"]),
        ("code_as_action", "```python\nadd('\\ud800')\n```", ["error"]),
        (
            "template",
            '<tool_call>[{"name": "add", "parameters": {"a": 1}}, {"name": "search"}]</tool_call>',
            [("add", {"a": 1}), ("search", [])],
        ),
        ({"type": "hermes", "open": "[CALL]", "close": "[/CALL]"}, '[CALL]{"name": "add"}[/CALL]', [("add", [])]),
    ],
)
def test_what_is_a_call(calling: Any, text: str, calls: list[Any]) -> None:
    reading = read(calling, text)
    assert brief(reading.calls) == calls and not reading.cut


@pytest.mark.parametrize(
    ("calling", "text", "said"),
    [
        ("hermes", "a <tool_call>{}</tool_call> b", "a  b"),
        ("xml", "<think>x</think>a<search>q</search>", "a"),
        ("react", "Thought: done\nFinal Answer: 7", "Thought: done\nFinal Answer: 7"),
    ],
)
def test_what_is_said_beside(calling: Any, text: str, said: str) -> None:
    assert read(calling, text).said == said


@pytest.mark.parametrize(
    ("calling", "said", "answer"),
    [
        ("hermes", "<answer>6</answer> no, <answer>\n7 </answer>", "7"),
        ("hermes", "it is 7", None),
        ("hermes", "<answer>7", None),
        ("react", "Thought: x\nFinal Answer: 7\n", "7"),
        ("react", "Action: Finish[7]", "7"),
        ("react", "Thought: the Final Answer: 7", None),
        ("react", "<answer>7</answer>", "7"),
    ],
)
def test_marked_answers(calling: str, said: str, answer: str | None) -> None:
    assert CALLING.parse(calling).answer_of(said) == answer


def test_values_without_a_name_fill_the_schema_in_order() -> None:
    schema = {
        "properties": {
            "k": {"type": "integer"},
            "query": {"type": "string"},
            "deep": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
        "required": ["query"],
    }
    bound = bind_arguments(Call("s", positional=("42", "3", "true"), as_text=True), schema)
    assert bound == {"query": "42", "k": 3, "deep": True}
    assert bind_arguments(Call("s", positional=("42", 3)), schema) == {"query": "42", "k": 3}
    assert bind_arguments(Call("s", {"k": "three"}, as_text=True), schema) == {"k": "three"}
    assert bind_arguments(Call("s", {"other": "3"}, as_text=True), schema) == {"other": "3"}
    with pytest.raises(ArgumentsFault, match="'query' is given twice"):
        bind_arguments(Call("s", {"query": "a"}, ("b",)), schema)
    with pytest.raises(ArgumentsFault, match="4 values"):
        bind_arguments(Call("s", positional=(1, 2, 3, 4)), schema)


@pytest.mark.parametrize("calling", list(CALLING))
def test_outputs_come_back_in_order_and_instructions_name_the_tools(calling: str) -> None:
    call_format = CALLING.parse(calling)
    messages = call_format.messages([Output("add", "first"), Output("search", "second")])
    text = "\n".join(message.content for message in messages)
    assert text.index("first") < text.index("second") and all(isinstance(m, Message) for m in messages)
    inline = call_format.inline([Output("add", "first"), Output("search", "second")])
    assert inline.index("first") < inline.index("second")
    assert ("give" in call_format.instructions([returns(1)])) != call_format.in_template


def test_a_format_of_ones_own_is_a_member_of_the_family() -> None:
    with pytest.raises(InputError, match="Known: code_as_action, fenced, function, hermes, react, template, xml"):
        CALLING.parse("nothing of the kind")
    assert parse_settings(ToolUse, {"calling": {"type": "xml"}}, "use").calling == CALLING.parse("xml")


@pytest.mark.parametrize(
    ("calling", "text"),
    [
        ("xml", "<add><a>3</a><b>4</b></add>"),
        ("xml", "<add>3</add>"),
        ("react", "Action: add(3, 4)"),
        ("react", 'Action: add\nAction Input: {"a": 3, "b": 4}'),
        ("function", '{"name": "add", "arguments": {"a": 3, "b": 4}}'),
        ("code_as_action", "```python\nadd(3, 4)\n```"),
        ("template", '<tool_call>{"name": "add", "arguments": {"a": 3, "b": 4}}</tool_call>'),
    ],
)
def test_calls_reach_the_tool_in_its_types(calling: str, text: str) -> None:
    env = Desk(calling=calling)
    env.reset("train", 0, 0)
    result = env.step(text)
    lacking = text == "<add>3</add>"
    assert env.ran == ([] if lacking else ["add 3 4"])
    assert result.metrics["tool_bad_arguments" if lacking else "tool_ok"] == 1.0


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("def f(a: int): pass", "a docstring is needed"),
        ("def f(a): 'Doc.'", "parameter 'a' has no type"),
        ("def f(*a: int): 'Doc.'", "give every parameter a name"),
        ("def f(**a: int): 'Doc.'", "give every parameter a name"),
        ("def f(a: int, /): 'Doc.'", "give every parameter a name"),
        ("def f(a: 'Missing'): 'Doc.'", "a type is not known"),
        ("def f(a: object()): 'Doc.'", "cannot be described"),
        ("def f(a: int):\n  '''Doc.\n\n  Args:\n    b: none.\n  '''", "describes ['b']"),
    ],
)
def test_functions_that_are_no_tools(function: str, says: str) -> None:
    space: dict[str, Any] = {}
    exec(function, space)
    with pytest.raises(InputError) as refusal:
        tool(space["f"])
    assert says in str(refusal.value) and "@tool f" in str(refusal.value)


def test_names_and_schemas_of_good_tools() -> None:
    @tool(name="find")
    def title(title: str, tags: dict[str, list[int]] | None = None) -> str:
        """Find by title.

        A longer word.

        Args:
            title: of the book,
                in quotes.
        """
        return title

    assert list(check_tools([title])) == ["find"] and title.description == "Find by title.\n\nA longer word."
    properties = title.parameters["properties"]
    assert properties["title"] == {"description": "of the book, in quotes.", "type": "string"}
    assert title.parameters["required"] == ["title"] and title.parameters["additionalProperties"] is False
    assert title("x") == "x"
