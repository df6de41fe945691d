"""Context strategies: which exchanges the policy sees, and when that opens a segment."""

from typing import Any

import numpy as np
import pytest
from chat_tokenizers import chatml_tokenizer, marker_tokenizer, template

from rllib_agentic.context import (
    CONTEXTS,
    AppendOnly,
    Ask,
    Exchange,
    Extend,
    Note,
    ObservationElision,
    Rewrite,
    SlidingWindow,
    Summary,
)
from rllib_agentic.errors import InputError
from rllib_agentic.rendering import HFTemplateRenderer, renderer_for
from rllib_agentic.trajectory import FinishReason, Message

PROMPT = (Message("system", "S"), Message("user", "task"))


def play(strategy, turns, *, tokenizer=None, renderer=None, say="a{n}<|im_end|>", tools=(), note=None, see="o{n}"):
    """Contexts of turns 0 .. turns as texts, and the segment number of each; ``note`` answers what is asked for."""
    tokenizer = tokenizer or chatml_tokenizer()
    renderer = renderer or renderer_for(tokenizer)
    segment_ids, segment, exchanges = renderer.render(PROMPT, tools=tools), 0, []
    contexts = [(tokenizer.decode(segment_ids), segment)]
    for n in range(turns):
        ids = np.array(tokenizer.encode(say.format(n=n), add_special_tokens=False), np.int32)
        segment_ids = np.concatenate([segment_ids, ids])
        exchanges.append(
            Exchange(Message("assistant", "?"), ids, FinishReason.STOP, (Message("user", see.format(n=n)),))
        )
        step = strategy.next(renderer, PROMPT, exchanges, segment_ids, tools=tools)
        if isinstance(step, Ask):
            step = step.then(note(step, segment_ids))
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


def count(text):
    return len(chatml_tokenizer().encode(text, add_special_tokens=False))


def test_a_window_of_tokens_keeps_as_many_exchanges_as_fit():
    strategy = SlidingWindow(max_tokens=count(full([0, 1, 2])), keep_tokens=count(full([0, 1]))).make()
    assert play(strategy, 5) == [
        (full([]), 0),
        (full([0]), 0),
        (full([0, 1]), 0),
        (full([0, 1, 2]), 0),
        (full([2, 3]), 1),
        (full([2, 3, 4]), 1),
    ]


def test_a_window_of_tokens_never_loses_the_last_exchange():
    assert play(SlidingWindow(max_tokens=1).make(), 2)[-1] == (full([1]), 2)


def test_a_window_of_both_drops_when_either_is_full():
    by_turns = SlidingWindow(turns=2, max_tokens=10_000).make()
    assert play(by_turns, 4) == play(SlidingWindow(turns=2).make(), 4)
    by_tokens = SlidingWindow(turns=50, max_tokens=count(full([0, 1, 2])), keep_tokens=count(full([0, 1]))).make()
    assert play(by_tokens, 5)[-1] == (full([2, 3, 4]), 1)


def test_a_window_begins_anew_in_every_episode():
    settings = SlidingWindow(turns=1)
    assert play(settings.make(), 3) == play(settings.make(), 3)


# --- observation elision ---------------------------------------------------------------------------------------------

LONG = "o{n} " + "far " * 20  # 84 characters


def elided(whole, short):
    seen = "".join(
        f"a{n}<|im_end|>\n<|im_start|>user\n{LONG.format(n=n) if n in whole else '[83 characters left out]'}"
        "<|im_end|>\n<|im_start|>assistant\n"
        for n in sorted([*whole, *short])
    )
    return full([]) + seen


def test_old_observations_are_shortened_and_actions_stay():
    contexts = play(ObservationElision(turns=2).make(), 4, see=LONG)
    assert contexts == [
        (elided([], []), 0),
        (elided([0], []), 0),
        (elided([0, 1], []), 0),
        (elided([1, 2], [0]), 1),
        (elided([2, 3], [0, 1]), 2),
    ]


def test_several_observations_are_shortened_at_once():
    contexts = play(ObservationElision(turns=1, every=2).make(), 6, see=LONG)
    assert [segment for _, segment in contexts] == [0, 0, 0, 1, 1, 2, 2]
    assert contexts[4][0] == elided([2, 3], [0, 1])
    assert contexts[5][0] == elided([4], [0, 1, 2, 3])


def test_observations_stay_whole_until_the_context_is_long():
    limit = count(elided([0, 1, 2], []))
    contexts = play(ObservationElision(turns=1, max_tokens=limit).make(), 5, see=LONG)
    assert [segment for _, segment in contexts][:5] == [0, 0, 0, 0, 1]
    assert contexts[3][0] == elided([0, 1, 2], []) and contexts[4][0] == elided([3], [0, 1, 2])
    assert all(count(text) <= limit for text, _ in contexts)


def test_what_is_short_already_opens_no_segment():
    assert [segment for _, segment in play(ObservationElision(turns=1).make(), 4)] == [0] * 5
    message = Message("tool", "x" * 100, name="look")
    assert ObservationElision(max_chars=10).shorten(message) == Message(
        "tool", "x" * 10 + "[90 more characters left out]", name="look"
    )
    marked = ObservationElision(max_chars=2, mark="...")
    assert [marked.shorten(Message("user", text)).content for text in ("Ways: Up.", "North")] == ["Wa...", "North"]


# --- summary ---------------------------------------------------------------------------------------------------------

ASSISTANT = "<|im_end|>\n<|im_start|>assistant\n"
NOTE = "note{k}<|im_end|>"


def summaries(settings, turns):
    """Contexts of the turns, and the context of each summary."""
    tokenizer, written = chatml_tokenizer(), []

    def note(ask, segment_ids):
        assert isinstance(ask.step, Extend)
        written.append(tokenizer.decode(np.concatenate([segment_ids, ask.step.added_ids])))
        if not ask.by_policy:
            return Note(f"told{len(written)}", None)
        text = NOTE.format(k=len(written))
        return Note("?", np.array(tokenizer.encode(text, add_special_tokens=False), np.int32))

    return play(settings.make(max_context_tokens=10_000), turns, note=note), written


def begun(request, note, then, numbers):
    """The context that a summary begins."""
    head = f"<|im_start|>system\nS<|im_end|>\n<|im_start|>user\ntask\n\n{request}{ASSISTANT}{note}"
    past = "".join(f"\n<|im_start|>user\no{n}{ASSISTANT}a{n + 1}<|im_end|>" for n in range(then, numbers))
    return f"{head}{past}\n<|im_start|>user\no{numbers}{ASSISTANT}"


def test_a_summary_is_asked_for_in_the_segment_and_begins_the_next_one():
    request = "Sum up."
    settings = Summary(max_tokens=count(full([0, 1, 2])) + 1, at=1.0, request=request)
    contexts, written = summaries(settings, 4)
    assert [segment for _, segment in contexts] == [0, 0, 0, 0, 1]
    assert written == [full([0, 1, 2, 3]).removesuffix(ASSISTANT) + f"\n\n{request}{ASSISTANT}"]
    assert contexts[4][0] == begun(request, "note1<|im_end|>", 3, 3)


def test_a_second_summary_covers_the_first():
    settings = Summary(max_tokens=count(full([0])) + 1, at=1.0, request="R", keep=0)
    contexts, written = summaries(settings, 4)
    assert len(written) == 3 and "note1" in written[1] and "note1" not in written[2]
    assert contexts[4][0] == begun("R", "note3<|im_end|>", 3, 3)


def test_the_last_exchanges_may_stay_beside_the_summary():
    settings = Summary(max_tokens=count(full([0, 1, 2])) + 1, at=1.0, request="R", keep=2)
    contexts, _ = summaries(settings, 4)
    assert contexts[4] == (begun("R", "note1<|im_end|>", 1, 3), 1)


def test_a_summary_by_another_model_is_told_to_the_policy():
    settings = Summary(max_tokens=count(full([0])) + 1, at=1.0, request="R", model={"preset": "smollm2"})
    contexts, _ = summaries(settings, 2)
    told = "task\n\nSummary of what happened so far:\ntold1\n\no1"
    assert contexts[2] == (f"<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n{told}{ASSISTANT}", 1)


def test_without_room_for_a_summary_the_last_exchange_stays():
    settings = Summary(max_tokens=count(full([0, 1])) + 1, at=1.0)
    contexts = play(settings.make(), 3, note=lambda ask, ids: None)
    assert contexts[3] == (full([2]), 1)


def test_the_share_is_of_the_rollouts_limit_where_none_is_given():
    strategy = Summary(at=0.5).make(max_context_tokens=2 * count(full([0, 1])))
    asked = []
    play(strategy, 3, note=lambda ask, ids: asked.append(len(ids)))
    assert len(asked) == 1
    with pytest.raises(ValueError, match="max_tokens"):
        Summary().make()


def test_a_template_that_rewrites_history_still_gets_its_summary():
    tokenizer = chatml_tokenizer(template("thinkstrip"))
    renderer = renderer_for(tokenizer)
    ids = np.array(tokenizer.encode("<think>\nt\n</think>\n\na<|im_end|>", add_special_tokens=False), np.int32)
    past = [Exchange(Message("assistant", "a"), ids, FinishReason.STOP, (Message("user", f"o{n}"),)) for n in range(2)]
    segment = np.concatenate([renderer.render(PROMPT), ids])
    ask = Summary(max_tokens=2, request="R").make().next(renderer, PROMPT, past, segment)
    assert isinstance(ask, Ask) and isinstance(ask.step, Rewrite)
    assert tokenizer.decode(ask.step.context_ids).endswith(f"o1\n\nR{ASSISTANT}")
    assert [m.content for m in ask.messages] == ["S", "task", "a", "o0", "a", "o1\n\nR"]


@pytest.mark.parametrize("strategy", [SlidingWindow(turns=1).make(), AppendOnly()])
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
    assert CONTEXTS.parse("sliding_window") == SlidingWindow(turns=4)
    assert CONTEXTS.parse({"type": "sliding_window", "max_tokens": 512}) == SlidingWindow(max_tokens=512)
    assert CONTEXTS.parse({"type": "summary", "trained": False}) == Summary(trained=False)
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"type": "sliding_windw"}, "Did you mean 'sliding_window'"),
        ({"type": "sliding_window", "turn": 3}, "Did you mean 'turns'"),
        ({"type": "sliding_window", "turns": 0}, r"context\.turns: .*greater than or equal to 1"),
        ({"type": "sliding_window", "turns": 2, "keep": 3}, "keep=3 is more than turns=2"),
        ({"type": "sliding_window", "max_tokens": 2, "keep_tokens": 3}, "keep_tokens=3 is more than max_tokens=2"),
        ({"type": "sliding_window", "max_tokens": 2, "keep": 3}, "keep=3 has no effect without turns"),
        ({"type": "observation_elision", "max_tokens": 9, "every": 3}, "'every' has no effect with 'max_tokens'"),
        ({"type": "summary", "at": 1.5}, r"context\.at: .*less than or equal to 1"),
    ]
    for spec, message in mistakes:
        with pytest.raises(InputError, match=message):
            CONTEXTS.parse(spec)
