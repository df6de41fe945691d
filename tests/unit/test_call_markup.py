"""Tool calls as chat templates write them: found by trying, and handed over in one common form."""

import asyncio
from functools import partial

import pytest
from chat_tokenizers import chatml_tokenizer, marker_tokenizer, qwen_tokenizer, template
from tool_desk import Desk

from rllib_agentic.context import AppendOnly
from rllib_agentic.engines.legal_tokens import ActionTries
from rllib_agentic.engines.scripted import ScriptedEngine
from rllib_agentic.envs.local import LocalClient
from rllib_agentic.errors import InputError
from rllib_agentic.rendering import ChatMLRenderer, HFTemplateRenderer
from rllib_agentic.rendering.call_markup import CallMarkup, find_call_markup
from rllib_agentic.rendering.chat_template import ChatTemplate
from rllib_agentic.rollout import EpisodePlan, Rollout, RolloutSettings
from rllib_agentic.tools.calling import CALLING, Call
from rllib_agentic.tools.calling.scan import read_turn
from rllib_agentic.trajectory import Task, Trajectory

HERMES = CallMarkup("<tool_call>", "</tool_call>", None)
MISTRAL = CallMarkup("[TOOL_CALLS]", "", None)
BARE = CallMarkup("", "", None)
NAMED = CallMarkup("<|call|>function<|sep|>", "```<|/call|>", "\n```json\n")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("qwen3", HERMES),
        ("mistral_calls", MISTRAL),
        ("bare_call", BARE),
        ("named_calls", NAMED),
        ("tagged_arguments", None),
        ("tools_last", None),
        ("strict_turns", None),
    ],
)
def test_what_a_template_puts_around_its_calls(name: str, found: CallMarkup | None) -> None:
    tokenizer = marker_tokenizer("tools_last")
    assert find_call_markup(ChatTemplate(tokenizer, template(name))) == found


CALLS = (Call("add", {"a": 1, "b": {"c": "}]"}}), Call("echo", {"text": "</s>\n"}))
FIRST, SECOND = '{"a": 1, "b": {"c": "}]"}}', '{"text": "</s>\\n"}'


@pytest.mark.parametrize(
    ("markup", "text", "said"),
    [
        (
            HERMES,
            f'So <tool_call>{{"name": "add", "arguments": {FIRST}}}</tool_call>\n'
            f'<tool_call>{{"name": "echo", "arguments": {SECOND}}}</tool_call>',
            "So",
        ),
        (
            MISTRAL,
            f'So [TOOL_CALLS] [{{"name": "add", "arguments": {FIRST}}}, {{"name": "echo", "arguments": {SECOND}}}]',
            "So",
        ),
        (BARE, f'\n[{{"name": "add", "parameters": {FIRST}}}, {{"name": "echo", "parameters": {SECOND}}}]', ""),
        (
            NAMED,
            f"So <|calls|><|call|>function<|sep|>add\n```json\n{FIRST}\n```<|/call|>\n"
            f"<|call|>function<|sep|>echo\n```json\n{SECOND}\n```<|/call|><|/calls|>",
            "So <|calls|>\n<|/calls|>",
        ),
    ],
)
def test_calls_in_any_markup_are_read_alike(markup: CallMarkup, text: str, said: str) -> None:
    calling = CALLING.parse("template")
    reading = read_turn(markup.to_hermes(text), lambda t, at: calling.find(t, at, ()))
    assert reading.calls == CALLS and reading.said == said and not reading.cut


@pytest.mark.parametrize(
    ("markup", "text", "hermes"),
    [
        (MISTRAL, "no call", "no call"),
        (MISTRAL, 'a [TOOL_CALLS] [{"name": "a', 'a <tool_call>[{"name": "a'),
        (MISTRAL, "[TOOL_CALLS] {bad} b", "<tool_call>{bad} b"),
        (MISTRAL, "[TOOL_CALLS] {bad} [TOOL_CALLS] []", "<tool_call>{bad}</tool_call><tool_call>[]</tool_call>"),
        (MISTRAL, "[TOOL_CALLS] {} and more", "<tool_call>{}</tool_call> and more"),
        (BARE, "It is 7.", "It is 7."),
        (BARE, '{"name": "a"', '<tool_call>{"name": "a"'),
        (BARE, '{"name": "a"} {"name": "b"}', '<tool_call>{"name": "a"} {"name": "b"}</tool_call>'),
        (NAMED, "<|call|>function<|sep|>ad", "<tool_call>ad"),
        (NAMED, "<|call|>function<|sep|>add\n```json\n{", '<tool_call>{"name": "add", "arguments": {}'),
        (
            NAMED,
            "<|call|>function<|sep|>add\n```json\n{bad}\n```<|/call|>",
            '<tool_call>{"name": "add", "arguments": {bad}}</tool_call>',
        ),
    ],
)
def test_what_cannot_be_read_is_handed_over_as_it_is(markup: CallMarkup, text: str, hermes: str) -> None:
    assert markup.to_hermes(text) == hermes


def play(renderer: HFTemplateRenderer | ChatMLRenderer, tokenizer: object, script: list[str]) -> Trajectory:
    engine = ScriptedEngine(script, tokenizer, stop_id=renderer.end_of_turn_id)

    async def run() -> Trajectory:
        client = LocalClient(partial(Desk, calling="template"))
        schema = await client.schema()
        rollout = Rollout(
            engine=engine,
            renderer=renderer,
            clients={"desk": client},
            make_strategy=AppendOnly().make,
            make_trie=ActionTries(tokenizer, renderer.end_of_turn_id).trie,
            settings=RolloutSettings(max_tokens_per_turn=400, max_context_tokens=8000),
            tools={"desk": [dict(tool) for tool in schema.tools]},
            stop_strings={"desk": schema.stop_strings},
        )
        trajectory = await rollout.run(EpisodePlan(Task("desk", "train", 0), "g", 0, seed=1, max_turns=5))
        await client.aclose()
        return trajectory

    return asyncio.run(run())


def test_an_episode_in_the_templates_own_words() -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": 4}}\n</tool_call>'
    trajectory = play(HFTemplateRenderer(qwen_tokenizer()), qwen_tokenizer(), [f"{call}\n{call}", "7"])
    text = qwen_tokenizer().decode(trajectory.segment_ids(0))
    assert trajectory.success and trajectory.turns[0].metrics["tool_ok"] == 2.0
    assert '"name": "add"' in text.split("<tools>")[-1].split("</tools>")[0]  # the template describes the tools
    response = "<tool_response>\n7\n</tool_response>"
    assert f"<|im_start|>user\n{response}\n{response}<|im_end|>" in text  # and wraps the outputs


def test_an_episode_in_another_markup_trains_on_what_was_sampled() -> None:
    tokenizer = marker_tokenizer("tools_last")
    renderer = HFTemplateRenderer(tokenizer, template("mistral_calls"))
    said = '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 3, "b": 4}}]'
    trajectory = play(renderer, tokenizer, [said, "7"])
    turn = trajectory.turns[0]
    assert trajectory.success and turn.metrics["tool_ok"] == 1.0 and turn.text == said
    assert turn.action_ids.tolist() == [*tokenizer.encode(said, add_special_tokens=False), renderer.end_of_turn_id]
    assert tokenizer.decode(trajectory.turns[1].context_ids) == "[RESULT]7[/RESULT]"


def test_a_template_without_calls_is_refused_before_anything_is_sampled() -> None:
    tokenizer = qwen_tokenizer()
    with pytest.raises(InputError, match=r"desk: .* writes no tool calls as JSON"):
        play(HFTemplateRenderer(tokenizer, template("tagged_arguments")), tokenizer, [])
    with pytest.raises(InputError, match="describe the tools in the system message"):
        play(ChatMLRenderer(chatml_tokenizer(), default_system=None), chatml_tokenizer(), [])


def test_renderers_know_their_markup() -> None:
    assert HFTemplateRenderer(qwen_tokenizer()).call_markup == HERMES
    assert ChatMLRenderer(chatml_tokenizer(), default_system=None).call_markup is None
