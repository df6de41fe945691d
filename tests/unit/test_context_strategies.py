"""Context strategies: which exchanges the policy sees, and when that opens a segment."""

from typing import Any

import numpy as np
import pytest
from chat_tokenizers import chatml_tokenizer, marker_tokenizer, template

from rllib_agentic.context import CONTEXTS, AppendOnly, Exchange, Extend, Rewrite, SlidingWindow, TokenWindow
from rllib_agentic.errors import InputError
from rllib_agentic.rendering import HFTemplateRenderer, renderer_for
from rllib_agentic.trajectory import FinishReason, Message

PROMPT = (Message("system", "S"), Message("user", "task"))


def play(strategy, turns, *, tokenizer=None, renderer=None, say="a{n}<|im_end|>", tools=()):
    """Contexts of turns 0 .. turns as texts, and the segment number of each."""
    tokenizer = tokenizer or chatml_tokenizer()
    renderer = renderer or renderer_for(tokenizer)
    segment_ids, segment, exchanges = renderer.render(PROMPT, tools=tools), 0, []
    contexts = [(tokenizer.decode(segment_ids), segment)]
    for n in range(turns):
        ids = np.array(tokenizer.encode(say.format(n=n), add_special_tokens=False), np.int32)
        segment_ids = np.concatenate([segment_ids, ids])
        exchanges.append(Exchange(Message("assistant", "?"), ids, FinishReason.STOP, (Message("user", f"o{n}"),)))
        step = strategy.next(renderer, PROMPT, exchanges, segment_ids, tools=tools)
        if isinstance(step, Rewrite):
            segment_ids, segment = step.context_ids, segment + 1
        else:
            assert isinstance(step, Extend)
            segment_ids = np.concatenate([segment_ids, step.added_ids])
        contexts.append((tokenizer.decode(segment_ids), segment))
    return contexts


def full(numbers, said="a{n}"):
    turns = "".join(
        f"{said.format(n=n)}<|im_end|>\n<|im_start|>user\no{n}<|im_end|>\n<|im_start|>assistant\n" for n in numbers
    )
    return f"<|im_start|>system\nS<|im_end|>\n<|im_start|>user\ntask<|im_end|>\n<|im_start|>assistant\n{turns}"


def test_append_only_stays_in_one_segment():
    assert play(AppendOnly().make(), 3) == [(full(range(n)), 0) for n in range(4)]


def test_tm01_append_only_opens_a_segment_where_the_template_rewrites():
    tokenizer = chatml_tokenizer(template("thinkstrip"))
    thought = "<think>\nt\n</think>\n\na{n}<|im_end|>"
    assert play(AppendOnly(), 3, tokenizer=tokenizer, say=thought) == [(full(range(n)), n) for n in range(4)]


def test_a_window_drops_the_oldest_exchange_and_only_then_opens_a_segment():
    assert play(SlidingWindow(turns=2).make(), 4) == [
        (full([]), 0),
        (full([0]), 0),
        (full([0, 1]), 0),
        (full([1, 2]), 1),
        (full([2, 3]), 2),
    ]


def test_a_window_that_keeps_less_opens_fewer_segments():
    contexts = play(SlidingWindow(turns=3, keep=1).make(), 7)
    assert [segment for _, segment in contexts] == [0, 0, 0, 0, 1, 1, 1, 2]
    assert contexts[4][0] == full([3])
    assert contexts[6][0] == full([3, 4, 5])
    assert contexts[7][0] == full([6])


def test_a_token_window_keeps_as_many_exchanges_as_fit():
    tokenizer = chatml_tokenizer()
    count = lambda numbers: len(tokenizer.encode(full(numbers), add_special_tokens=False))  # noqa: E731
    strategy = TokenWindow(max_tokens=count([0, 1, 2]), keep_tokens=count([0, 1])).make()
    assert play(strategy, 5) == [
        (full([]), 0),
        (full([0]), 0),
        (full([0, 1]), 0),
        (full([0, 1, 2]), 0),
        (full([2, 3]), 1),
        (full([2, 3, 4]), 1),
    ]


def test_a_token_window_never_loses_the_last_exchange():
    assert play(TokenWindow(max_tokens=1), 2)[-1] == (full([1]), 2)


@pytest.mark.parametrize("strategy", [SlidingWindow(turns=1), AppendOnly()])
def test_a_context_begun_anew_shows_the_tools_again(strategy):
    tokenizer = marker_tokenizer("tools_last")
    renderer = HFTemplateRenderer(tokenizer)
    prompt = (Message("user", "task"),)
    tools = [{"name": "look"}]
    ids = np.array(tokenizer.encode("a</s>", add_special_tokens=False), np.int32)
    past = [Exchange(Message("assistant", "a"), ids, FinishReason.STOP, (Message("user", f"o{n}"),)) for n in range(2)]
    renderer.render(prompt, tools=tools)
    step = strategy.next(renderer, prompt, past, ids, tools=tools)
    assert isinstance(step, Rewrite)
    assert tokenizer.decode(step.context_ids).endswith('a</s>[TOOLS][{"name": "look"}][/TOOLS][INST]o1[/INST]')


def test_the_family_reads_yaml_and_explains_mistakes():
    assert CONTEXTS.parse("append_only") == AppendOnly()
    assert CONTEXTS.parse({"type": "sliding_window", "turns": 8, "keep": 4}) == SlidingWindow(turns=8, keep=4)
    assert CONTEXTS.parse({"type": "token_window"}) == TokenWindow(max_tokens=4096)
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"type": "sliding_windw"}, "Did you mean 'sliding_window'"),
        ({"type": "sliding_window", "turn": 3}, "Did you mean 'turns'"),
        ({"type": "sliding_window", "turns": 0}, r"context\.turns: .*greater than or equal to 1"),
        ({"type": "sliding_window", "turns": 2, "keep": 3}, "keep=3 is more than turns=2"),
        ({"type": "token_window", "max_tokens": 2, "keep_tokens": 3}, "keep_tokens=3 is more than max_tokens=2"),
    ]
    for spec, message in mistakes:
        with pytest.raises(InputError, match=message):
            CONTEXTS.parse(spec)
