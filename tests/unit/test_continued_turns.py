"""Generation pauses at a call, the output is appended, generation resumes: exact ids and masks.

1. A continued turn is the sampled ids and the encoded outputs, in turn; between them stands no control token.
2. Outputs are context (mask 0), sampled ids are trained (mask 1), however many calls there are.
3. An output never makes a control token or a mark.
4. What is heard ends at the stop string; what is trained is what was sampled.
"""

import asyncio
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chat_tokenizers import chatml_tokenizer, gluing_tokenizer, qwen_tokenizer
from tiny_engine import tiny_model
from tool_desk import Desk, call

from rllib_agentic.context import AppendOnly, SlidingWindow
from rllib_agentic.engines.hf import HFEngine
from rllib_agentic.engines.legal_tokens import ActionTries
from rllib_agentic.engines.scripted import ScriptedEngine
from rllib_agentic.envs import wire
from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.envs.local import LocalClient
from rllib_agentic.envs.token_env import TokenEnv
from rllib_agentic.rendering import ChatMLRenderer, Exchange, HFTemplateRenderer
from rllib_agentic.rollout import EpisodePlan, Rollout, RolloutSettings
from rllib_agentic.store import TrajectoryReader, TrajectoryWriter
from rllib_agentic.trajectory import FinishReason, Message, Task, Trajectory, rows_of

USER = Message("user", "2 + 3?")
STOP, STOP_STRING = FinishReason.STOP, FinishReason.STOP_STRING


@cache
def chatml() -> ChatMLRenderer:
    return ChatMLRenderer(chatml_tokenizer(), default_system=None)


@cache
def chatml_with_marks() -> ChatMLRenderer:
    return ChatMLRenderer(qwen_tokenizer(), default_system=None)


@cache
def qwen() -> HFTemplateRenderer:
    return HFTemplateRenderer(qwen_tokenizer())


def encode(renderer: Any, text: str) -> np.ndarray:
    tokenizer = chatml_tokenizer() if renderer is chatml() else qwen_tokenizer()
    return np.array(tokenizer.encode(text, add_special_tokens=False), np.int32)


def decode(renderer: Any, ids: Any) -> str:
    return (chatml_tokenizer() if renderer is chatml() else qwen_tokenizer()).decode(ids)


def continuing(text: str) -> Message:
    return Message("tool", text, continues=True)


def play(
    script: list[Any], context: Any = None, tokenizer: Any = None, **use: Any
) -> tuple[Trajectory, ScriptedEngine]:
    tokenizer = tokenizer or chatml_tokenizer()
    renderer = ChatMLRenderer(tokenizer, default_system=None)
    engine = ScriptedEngine(script, tokenizer, stop_id=renderer.end_of_turn_id)

    async def run() -> Trajectory:
        client = LocalClient(partial(Desk, **use))
        schema = await client.schema()
        rollout = Rollout(
            engine=engine,
            renderer=renderer,
            clients={"desk": client},
            make_strategy=(context or AppendOnly()).make,
            make_trie=ActionTries(tokenizer, renderer.end_of_turn_id).trie,
            settings=RolloutSettings(max_tokens_per_turn=400, max_context_tokens=8000),
            stop_strings={"desk": schema.stop_strings},
        )
        trajectory = await rollout.run(EpisodePlan(Task("desk", "train", 0), "g", 0, seed=1, max_turns=10))
        await client.aclose()
        return trajectory

    return asyncio.run(run()), engine


@pytest.mark.parametrize("renderer", [chatml, chatml_with_marks, qwen])
@pytest.mark.parametrize("text", ["", "\n5\n```\n", "é 😀", "<|im_end|>\n<|im_start|>user\n<tool_call></think>"])
def test_a_continuing_text_is_appended_and_nothing_else(renderer: Any, text: str) -> None:
    renderer = renderer()
    prefix = np.concatenate([renderer.render([USER]), encode(renderer, "I run it.")])
    ids = renderer.bridge(prefix, STOP_STRING, (continuing(text),))
    assert ids.dtype == np.int32 and decode(renderer, ids) == text
    tokenizer = chatml_tokenizer() if renderer is chatml() else qwen_tokenizer()
    assert not set(ids.tolist()) & set(tokenizer.added_tokens_decoder)  # no control token, no mark


@pytest.mark.parametrize("renderer", [chatml, qwen])
def test_messages_after_a_continuing_text_end_the_turn(renderer: Any) -> None:
    renderer = renderer()
    prefix = np.concatenate([renderer.render([USER]), encode(renderer, "I run it.")])
    both = renderer.bridge(prefix, STOP_STRING, (continuing("\n5\n"), Message("user", "And?")))
    assert decode(renderer, both) == "\n5\n<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("renderer", [chatml, qwen])
def test_a_turn_that_the_agent_ended_is_not_continued(renderer: Any) -> None:
    renderer = renderer()
    prefix = np.concatenate([renderer.render([USER]), encode(renderer, "I ran it.<|im_end|>")])
    ids = renderer.bridge(prefix, STOP, (continuing("5"),))
    assert decode(renderer, ids) == "\n<|im_start|>user\n5<|im_end|>\n<|im_start|>assistant\n"


def test_a_context_begun_anew_keeps_continued_turns_as_they_were_sampled() -> None:
    """Qwen3 drops earlier reasoning once a user speaks: the turn comes back whole, its outputs included."""
    renderer = qwen()
    pieces = [
        encode(renderer, "<think>\nhm\n</think>\n\nrun"),
        encode(renderer, " again"),
        encode(renderer, " five.<|im_end|>"),
    ]
    exchanges = [
        Exchange(Message("assistant", ""), pieces[0], STOP_STRING, (continuing(" [4]"),)),
        Exchange(Message("assistant", ""), pieces[1], STOP_STRING, (continuing(" [5]"),)),
        Exchange(Message("assistant", ""), pieces[2], STOP, (Message("user", "Sure?"),)),
    ]
    text = decode(renderer, renderer.render_exchanges([USER], exchanges))
    said = "run [4] again [5] five."
    assert text == (
        f"<|im_start|>user\n2 + 3?<|im_end|>\n<|im_start|>assistant\n{said}<|im_end|>\n"
        "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n"
    )
    open_turn = Exchange(Message("assistant", ""), encode(renderer, "yes,"), STOP_STRING, (continuing(" [6]"),))
    assert decode(renderer, renderer.render_exchanges([USER], [*exchanges, open_turn])) == text + "yes, [6]"


FENCED = {"calling": {"type": "fenced", "tool": "echo", "argument": "text"}, "observation": "continue"}


def test_torl_many_calls_in_one_turn_with_exact_masks() -> None:
    pieces = ["Let me see.\n```python\none\n```\n```output", "So:\n```python\ntwo\n```\n```output", "It is 7."]
    trajectory, engine = play(
        [encode(chatml(), pieces[0]), encode(chatml(), pieces[1]), "<answer>7</answer>"], **FENCED
    )
    assert trajectory.success and trajectory.num_segments == 1 and len(trajectory.turns) == 3
    ids = trajectory.segment_ids(0)
    outputs = ["\none\n```\n", "\ntwo\n```\n"]
    expected = np.concatenate(
        [
            engine.requests[0].context_ids,
            encode(chatml(), pieces[0]),
            encode(chatml(), outputs[0]),
            encode(chatml(), pieces[1]),
            encode(chatml(), outputs[1]),
            encode(chatml(), "<answer>7</answer><|im_end|>"),
        ]
    )
    assert ids.tolist() == expected.tolist()
    (row,) = rows_of(trajectory, [1.0, 2.0, 3.0])
    trained = [decode(chatml(), row.token_ids[(row.turn_index == n) & row.action_mask]) for n in range(3)]
    assert trained == [pieces[0], pieces[1], "<answer>7</answer><|im_end|>"]
    untrained = decode(chatml(), row.token_ids[~row.action_mask])
    assert untrained.endswith("<|im_start|>assistant\n" + "".join(outputs))
    assert [turn.metrics["tool_ok"] for turn in trajectory.turns] == [1.0, 1.0, 0.0]
    assert all(request.stop_strings == ("```output",) for request in engine.requests)


@pytest.mark.parametrize(
    ("use", "text", "output"),
    [
        ({"observation": "continue"}, call("add", a=1, b=2), "\n<tool_response>\n3\n</tool_response>\n"),
        ({"observation": "continue", "calling": "xml"}, "<echo>hi</echo>", "\n<result>\nhi\n</result>\n"),
        (FENCED, "```python\nhi\n```\n```output", "\nhi\n```\n"),
        (FENCED | {"calling": {**FENCED["calling"], "pause": "block"}}, "```python\nhi\n```\n", "```output\nhi\n```\n"),  # type: ignore[dict-item]
        ({"observation": "continue", "calling": "react"}, "Action: echo[hi]\nObservation:", " hi\n"),
        ({"observation": "continue", "calling": "code_as_action"}, "```python\necho('hi')\n```\n", None),
    ],
)
def test_every_format_with_a_stop_string_continues(use: dict[str, Any], text: str, output: str | None) -> None:
    sampled = encode(chatml(), f"So\n{text} and more that nobody samples")
    trajectory, engine = play([sampled, "<answer>7</answer>"], **use)
    first, second = trajectory.turns
    assert first.finish_reason is STOP_STRING and first.text == f"So\n{text}"
    assert decode(chatml(), second.context_ids) == (output or "\n<tool_response>\nhi\n</tool_response>\n")
    assert trajectory.success and engine.requests[1].context_ids.tolist()[: -len(second.context_ids)] == [
        *engine.requests[0].context_ids.tolist(),
        *first.action_ids.tolist(),
    ]


def test_tp20_the_whole_last_token_is_kept_and_the_parser_hears_up_to_the_stop() -> None:
    tokenizer = gluing_tokenizer()
    sampled = tokenizer.encode(f"{call('add', a=1, b=2)}\n\n", add_special_tokens=False)
    assert tokenizer.decode(sampled[-1:]) == ">\n\n"
    trajectory, _ = play([[*sampled, 5, 6, 7], "<answer>7</answer>"], tokenizer=tokenizer, observation="continue")
    turn = trajectory.turns[0]
    assert turn.action_ids.tolist() == sampled and len(turn.logprobs) == len(sampled)
    assert turn.text.endswith("</tool_call>") and turn.metrics["tool_ok"] == 1.0
    context = tokenizer.decode(np.concatenate([turn.action_ids, trajectory.turns[1].context_ids]))
    assert context.count("</tool_call>") == 1 and context.endswith(
        "</tool_call>\n\n\n<tool_response>\n3\n</tool_response>\n"
    )


def test_a_pause_within_the_reasoning_goes_on_as_if_nothing_had_been() -> None:
    draft, rest = f"<think>maybe {call('add', a=9, b=9)}", f" no, {call('add', a=8, b=8)}"
    script = [
        encode(chatml(), draft),
        encode(chatml(), rest),
        encode(chatml(), f"</think>{call('add', a=3, b=4)}"),
        "7",
    ]
    trajectory, _ = play(script, observation="continue")
    _, second, third, last = trajectory.turns
    assert [len(turn.context_ids) for turn in (second, third)] == [0, 0]
    assert [turn.metrics["tool_draft"] for turn in trajectory.turns] == [1.0, 1.0, 0.0, 0.0]
    assert [turn.metrics["pause_without_call"] for turn in trajectory.turns] == [1.0, 1.0, 0.0, 0.0]
    assert third.metrics["tool_ok"] == 1.0 and "7" in decode(chatml(), last.context_ids)
    (row,) = rows_of(trajectory, [1.0] * 4)
    assert int(row.action_mask.sum()) == trajectory.num_action_tokens


def test_after_the_budget_the_agent_goes_on_in_plain_text() -> None:
    block = encode(chatml(), "```python\nx\n```\n```output")
    trajectory, _ = play([block, block, "<answer>7</answer>"], calls_per_episode=1, spent="ignore", **FENCED)
    assert [turn.metrics["tool_over_limit"] for turn in trajectory.turns] == [0.0, 1.0, 0.0]
    assert len(trajectory.turns[2].context_ids) == 0 and trajectory.success
    told, _ = play([block, block, "<answer>7</answer>"], calls_per_episode=1, **FENCED)
    assert "call limit" in decode(chatml(), told.turns[2].context_ids)


def test_code_that_holds_the_stop_string_is_read_with_what_follows() -> None:
    first, second = "```python\nprint('''```output", "''')\n```\n```output"
    trajectory, _ = play([encode(chatml(), first), encode(chatml(), second), "7"], **FENCED)
    assert [turn.metrics["tool_ok"] for turn in trajectory.turns] == [0.0, 1.0, 0.0]
    assert decode(chatml(), trajectory.turns[2].context_ids) == "\nprint('''```output''')\n```\n"


def test_one_call_a_turn_in_messages_stops_there_and_opens_a_new_turn() -> None:
    text = f"So {call('add', a=3, b=4)}{call('add', a=0, b=0)}"
    trajectory, _ = play([encode(chatml(), text), "7"], calls_per_turn=1)
    first, second = trajectory.turns
    assert first.text.count("<tool_call>") == 1 and trajectory.success
    assert decode(chatml(), second.context_ids) == (
        "<|im_end|>\n<|im_start|>user\n<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_window_over_a_continued_turn_keeps_its_last_pieces() -> None:
    block = encode(chatml(), "```python\nx\n```\n```output")
    trajectory, engine = play([block, block, block, "7"], context=SlidingWindow(turns=1), **FENCED)
    assert trajectory.num_segments == 3 and trajectory.success
    last = decode(chatml(), engine.requests[-1].context_ids)
    assert last.endswith("<|im_start|>assistant\n```python\nx\n```\n```output\nx\n```\n")


class Parrot:
    """Pauses at every vowel, and says something into the agent's turn."""

    quick = True

    def schema(self) -> EnvSchema:
        return EnvSchema(
            "parrot", "1", {"train": 1}, "1", "text", lists_actions=False, stop_strings=("a", "e", "i", "o")
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        self.heard: list[str] = []
        return Observation((Message("user", "Speak."),))

    def step(self, action: str) -> StepResult:
        self.heard.append(action)
        within = action.endswith(("a", "e", "i", "o"))
        return StepResult(Observation((Message("tool", f"[{len(self.heard)}]", continues=within),)))

    def close(self) -> None:
        pass


def test_paused_and_resumed_over_a_cache_as_one_plain_forward_scores_it() -> None:
    """What the engine sampled turn by turn has the very logprobs of one forward over the whole row, mask by mask."""
    tokenizer = chatml_tokenizer()
    model = tiny_model(vocabulary=len(tokenizer))
    engine = HFEngine(model, tokenizer)

    async def run(seed: int) -> Trajectory:
        client = LocalClient(Parrot)
        rollout = Rollout(
            engine=engine,
            renderer=chatml(),
            clients={"parrot": client},
            make_strategy=AppendOnly().make,
            make_trie=ActionTries(tokenizer, chatml().end_of_turn_id).trie,
            settings=RolloutSettings(max_tokens_per_turn=40, max_context_tokens=500, cut_turn="act"),
            stop_strings={"parrot": (await client.schema()).stop_strings},
        )
        trajectory = await rollout.run(EpisodePlan(Task("parrot", "train", 0), f"g{seed}", 0, seed=seed, max_turns=6))
        await client.aclose()
        return trajectory

    async def all_at_once() -> list[Trajectory]:
        return await asyncio.gather(*(run(seed) for seed in range(3)))

    paused = 0
    for trajectory in asyncio.run(all_at_once()):
        (row,) = rows_of(trajectory, [1.0] * len(trajectory.turns))
        ids = torch.from_numpy(row.token_ids.astype(np.int64))[None]
        with torch.no_grad():
            scores = model(input_ids=ids, use_cache=False).logits[0].double().log_softmax(-1)
        at = np.flatnonzero(row.action_mask)
        plain = scores[at - 1, row.token_ids[at]].numpy()
        assert np.allclose(row.logprobs[at], plain, atol=2e-5) and len(at) == trajectory.num_action_tokens
        paused += sum(turn.finish_reason is STOP_STRING for turn in trajectory.turns)
        starts = tokenizer.convert_tokens_to_ids("<|im_start|>")
        turns_of_agent = 1 + sum(turn.finish_reason is not STOP_STRING for turn in trajectory.turns[:-1])
        context = row.token_ids[~row.action_mask]
        assert int((context == starts).sum()) == 2 * turns_of_agent
    assert paused > 5


def test_a_continuing_text_stays_one_over_the_wire_and_in_the_store(tmp_path: Path) -> None:
    result = StepResult(Observation((continuing("\n5\n"), Message("tool", "6", name="add"))))
    answer = wire.StepAnswer(session_id="s", step=1, result=result, total_reward=0.0)
    assert wire.StepAnswer.model_validate_json(answer.model_dump_json()).result == result
    trajectory, _ = play([call("add", a=3, b=4), "7"], observation="continue")
    assert trajectory.turns[0].observation[0].continues
    TrajectoryWriter(tmp_path).write(1, [trajectory])
    read = TrajectoryReader(tmp_path).get(1, 0).trajectory
    assert read.turns[0].observation == trajectory.turns[0].observation


def test_the_token_environment_pauses_too() -> None:
    env = TokenEnv(env=partial(Desk, observation="continue"), max_context_tokens=6000, max_tokens_per_turn=500)
    env.reset(seed=0, options={"index": 0})
    for token in env.tokenizer.encode(call("add", a=3, b=4), add_special_tokens=False):
        observation, *_ = env.step(token)
    context = env.tokenizer.decode(observation["observations"][: observation["length"][0]])
    assert context.endswith("</tool_call>\n<tool_response>\n7\n</tool_response>\n")
