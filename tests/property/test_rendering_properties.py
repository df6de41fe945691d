"""Rendering contracts, for any content:

1. A chain of render and bridges gives the ids of one full render, wherever the template appends.
2. The number of control tokens depends on the roles, never on the contents.
3. A bridge is a strict extension that ends with the generation prompt; the sampled ids stay as they are.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from chat_tokenizers import (
    QWEN_MARKS,
    SMOLLM2,
    chatml_tokenizer,
    marker_tokenizer,
    qwen_tokenizer,
    sentencepiece_tokenizer,
    unigram_tokenizer,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib_agentic.rendering import HFTemplateRenderer, renderer_for
from rllib_agentic.rendering.chain import chain_exchanges
from rllib_agentic.rendering.renderer import Exchange
from rllib_agentic.trajectory import FinishReason, Message

MARKERS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|user|>", "<|observation|>", "</s>", "[INST]", "<bos>")
SNIPPETS = (*MARKERS, *QWEN_MARKS, "<|im_", "end|>", "<", "|>", "\n", " ", "assistant\n", "\U0010fffb", "\U0010fffd")
content = st.lists(st.sampled_from(SNIPPETS) | st.text(max_size=6), max_size=6).map("".join)
said = st.from_regex(r"[a-z]{1,5}( [a-z]{1,5}){0,3}", fullmatch=True)
observation = st.builds(Message, role=st.sampled_from(["user", "tool"]), content=content)
turns = st.lists(st.tuples(said, observation), min_size=1, max_size=3)

RENDERERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "chatml": (chatml_tokenizer, renderer_for),
    "chatml by template": (lambda: chatml_tokenizer(SMOLLM2), HFTemplateRenderer),
    "sentencepiece": (lambda: sentencepiece_tokenizer(SMOLLM2), renderer_for),
    "unigram": (unigram_tokenizer, renderer_for),
    "qwen3": (qwen_tokenizer, HFTemplateRenderer),
    "role markers": (lambda: marker_tokenizer("role_markers"), HFTemplateRenderer),
    "tools last": (lambda: marker_tokenizer("tools_last"), HFTemplateRenderer),
}
MADE: dict[str, tuple[Any, Any]] = {}


def made(name):
    if name not in MADE:
        make, choose = RENDERERS[name]
        MADE[name] = make(), choose(make())
    return MADE[name]


def action(tokenizer, renderer, text):
    """The ids of a text as they stand after a control token, with the end of turn where the format has one."""
    control = tokenizer.convert_ids_to_tokens(min(renderer.stop_ids))
    ids = tokenizer.encode(control + text, add_special_tokens=False)[1:]
    if tokenizer is marker_tokenizer("role_markers"):  # the marker that would end the turn comes with the bridge
        return np.array(ids, np.int32), FinishReason.LENGTH
    return np.array([*ids, renderer.end_of_turn_id], np.int32), FinishReason.STOP


@pytest.mark.parametrize("name", RENDERERS)
@settings(max_examples=40, deadline=None)
@given(first=content, past=turns)
def test_1_chain_equals_full_render(name, first, past):
    tokenizer, renderer = made(name)
    prompt = [Message("user", first)]
    exchanges, history = [], list(prompt)
    for text, message in past:
        ids, reason = action(tokenizer, renderer, text)
        exchanges.append(Exchange(Message("assistant", text), ids, reason, (message,)))
        history += [Message("assistant", text), message]
    chained = chain_exchanges(renderer, renderer.render(prompt), exchanges)
    whole = renderer.render(history)
    assert tokenizer.decode(chained) == tokenizer.decode(whole)
    if name != "sentencepiece":  # it merges letters over the line break before the answer
        assert chained.tolist() == whole.tolist()
    assert renderer.render_exchanges(prompt, exchanges).tolist() == chained.tolist()


@pytest.mark.parametrize("name", RENDERERS)
@settings(max_examples=60, deadline=None)
@given(contents=st.lists(content, min_size=3, max_size=3), role=st.sampled_from(["user", "tool"]))
def test_2_controls_come_from_roles_alone(name, contents, role):
    tokenizer, renderer = made(name)
    controls = set(tokenizer.added_tokens_decoder) - {tokenizer.unk_token_id}

    def controls_of(texts):
        messages = [
            Message("user", texts[0]),
            Message("assistant", "a"),
            Message(role, texts[1] + "."),
            Message("user", texts[2]),
        ]
        return Counter(i for i in renderer.render(messages).tolist() if i in controls)

    assert controls_of(contents) == controls_of(["x", "y", "z"])


@pytest.mark.parametrize("name", RENDERERS)
@settings(max_examples=40, deadline=None)
@given(text=content, message=observation, reason=st.sampled_from(list(FinishReason)), data=st.data())
def test_3_a_bridge_extends_and_ends_with_the_generation_prompt(name, text, message, reason, data):
    tokenizer, renderer = made(name)
    no_reasoning = tokenizer.convert_tokens_to_ids("</think>") if name == "qwen3" else None
    token = st.integers(0, len(tokenizer) - 1).filter(lambda number: number != no_reasoning)
    sampled = data.draw(st.lists(token, min_size=1, max_size=5), label="sampled")
    if reason is FinishReason.STOP:
        sampled[-1] = data.draw(st.sampled_from(sorted(renderer.stop_ids)), label="stop")
    prefix = np.concatenate([renderer.render([Message("user", text)]), np.array(sampled, np.int32)])
    bridge = renderer.bridge(prefix, reason, [message])
    assert bridge.dtype == np.int32
    prompts = {"role markers": "<|assistant|>\n", "tools last": "[/INST]" if message.role == "user" else "[/RESULT]"}
    expected = prompts.get(name, "<|im_start|>assistant\n")
    assert tokenizer.decode(bridge).replace(" ", "").endswith(expected)
    end = renderer.end_of_turn_id
    if name != "role markers":
        sampled_end, added_end = sampled[-1] == end, bridge[0] == end
        assert sampled_end + added_end == (0 if reason is FinishReason.STOP and not sampled_end else 1)
