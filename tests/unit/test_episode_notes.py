"""Summaries in an episode: a note of the policy is a turn, or context; what is trained is what the engine saw."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from chat_tokenizers import chatml_tokenizer
from test_episode import Countries, capitals, plan, renderer, rollout  # type: ignore[import-not-found]

from rllib_agentic.advantages import ESTIMATORS, CriticEstimator, Estimator
from rllib_agentic.context import Summary
from rllib_agentic.engines.scripted import ScriptedEngine
from rllib_agentic.errors import InputError
from rllib_agentic.rollout.episode import Rollout
from rllib_agentic.rollout.note_writer import EngineWriter, load_writer
from rllib_agentic.store import TrajectoryReader, TrajectoryWriter
from rllib_agentic.trajectory import Message, Row, rows_of
from rllib_agentic.trajectory.checksum import ENGINE_CHECKSUM, checksum_rows

SCRIPT = ("Paris", "I said Paris, Spain is next", "Madrid", "Rome")


def early(**settings: object) -> Summary:
    """Asks for a summary before every turn but the first; ``threshold`` is one token beyond the first context."""
    return Summary(max_tokens=2, request="Sum up.", **settings)  # type: ignore[arg-type]


def text(row: Row) -> str:
    return chatml_tokenizer().decode(row.token_ids)


def test_a_note_of_the_policy_is_a_trained_turn_and_begins_the_next_segment() -> None:
    engine = capitals(("Paris", "note one", "Madrid", "note two", "Rome"))
    trajectory = asyncio.run(rollout(engine, Countries(), early()).run(plan()))
    assert [turn.text for turn in trajectory.turns] == ["Paris", "note one", "Madrid", "note two", "Rome"]
    assert [turn.segment for turn in trajectory.turns] == [0, 0, 1, 1, 2]
    assert [turn.metrics.get("note", 0) for turn in trajectory.turns] == [0, 1, 0, 1, 0]
    assert trajectory.metrics["notes"] == 2 and trajectory.success and trajectory.total_reward == 1.0
    rows = rows_of(trajectory, [1.0] * 5)
    assert len(rows) == 3 and sum(int(row.action_mask.sum()) for row in rows) == trajectory.num_action_tokens
    assert "Sum up.<|im_end|>" in text(rows[0]) and text(rows[0]).endswith("note one<|im_end|>")
    assert "note one<|im_end|>" in text(rows[1]) and "Paris" not in text(rows[1])
    assert "note two<|im_end|>" in text(rows[2]) and "note one" not in text(rows[2])
    seen = [request.context_ids.tolist() for request in engine.requests]
    starts = [i for row in rows for i in np.flatnonzero(np.diff(row.action_mask.astype(int), prepend=0) == 1)]
    by_row = [row for row in rows for _ in range(int((np.diff(row.action_mask.astype(int), prepend=0) == 1).sum()))]
    assert [row.token_ids[:start].tolist() for row, start in zip(by_row, starts, strict=True)] == seen
    assert checksum_rows(rows) == trajectory.metrics[ENGINE_CHECKSUM]


def test_an_untrained_note_is_context_alone() -> None:
    engine = capitals(("Paris", "note one", "Madrid", "note two", "Rome"))
    trajectory = asyncio.run(rollout(engine, Countries(), early(trained=False)).run(plan()))
    assert [turn.text for turn in trajectory.turns] == ["Paris", "Madrid", "Rome"]
    assert [turn.segment for turn in trajectory.turns] == [0, 1, 2] and trajectory.metrics["notes"] == 2
    rows = rows_of(trajectory, [1.0] * 3)
    note = chatml_tokenizer().encode("note one<|im_end|>")
    ids = rows[1].token_ids.tolist()
    (at,) = [i for i in range(len(ids)) if ids[i : i + len(note)] == note]
    assert not rows[1].action_mask[at : at + len(note)].any()
    assert "Sum up." not in text(rows[0])
    assert checksum_rows(rows) == trajectory.metrics[ENGINE_CHECKSUM]


@dataclass
class Scribe:
    heard: list[Sequence[Message]] = field(default_factory=list)

    async def write(self, messages: Sequence[Message], max_tokens: int, seed: int) -> str:
        self.heard.append(messages)
        return f"summary {len(self.heard)}"


def test_another_model_writes_from_the_whole_conversation() -> None:
    scribe = Scribe()
    made: Rollout = replace(rollout(capitals(), Countries(), early(model={"preset": "smollm2"})), writer=scribe)
    trajectory = asyncio.run(made.run(plan()))
    assert [turn.text for turn in trajectory.turns] == ["Paris", "Madrid", "Rome"]
    assert [m.content for m in scribe.heard[0]][:2] == ["What is the capital of France?", "Paris"]
    assert scribe.heard[0][-1].content.endswith("Sum up.")
    assert "summary 1" in scribe.heard[1][0].content  # the first one is all that is left of what it covers
    last = rows_of(trajectory, [0.0] * 3)[-1]
    assert "Summary of what happened so far:\nsummary 2" in text(last) and "summary 1" not in text(last)


def test_limits_hold_for_notes_and_without_room_the_episode_goes_on() -> None:
    engine = capitals(("Paris", "a very long note that never ends " * 4, "Madrid", "x", "Rome"))
    trajectory = asyncio.run(rollout(engine, Countries(), early(summary_tokens=3)).run(plan()))
    assert len(trajectory.turns[1].action_ids) == 3 and trajectory.turns[1].finish_reason == "length"
    assert trajectory.success
    crowded = capitals(("Paris", "Madrid", "Rome"))
    first = len(renderer().render((Message("user", "What is the capital of France?"),)))
    tight = rollout(crowded, Countries(), early(), max_context_tokens=first + 34, max_tokens_per_turn=8)
    trajectory = asyncio.run(tight.run(plan()))
    assert trajectory.metrics["notes"] == 0 and [t.segment for t in trajectory.turns] == [0, 1, 2]


def test_a_summary_within_an_episode_limit_counts_its_tokens() -> None:
    engine = capitals(("Paris", "note one", "Madrid", "note two", "Rome"))
    limited = rollout(engine, Countries(), early(), max_tokens_per_episode=9, max_tokens_per_turn=8)
    trajectory = asyncio.run(limited.run(plan()))
    assert trajectory.num_action_tokens <= 9 and trajectory.truncated


def test_a_writers_long_conversation_loses_its_middle() -> None:
    engine = ScriptedEngine(["ok"], chatml_tokenizer(), stop_id=renderer().end_of_turn_id)
    writer = EngineWriter(engine, renderer(), max_context_tokens=50)
    messages = [Message("user", f"begin {'x ' * 300} end")]
    assert asyncio.run(writer.write(messages, 10, 0)) == "ok"
    seen = engine.requests[0].context_ids
    whole = renderer().render(messages)
    assert len(seen) == 40 and seen[:20].tolist() == whole[:20].tolist() and seen[-20:].tolist() == whole[-20:].tolist()


def test_nothing_downstream_knows_of_notes(tmp_path: Path) -> None:
    script = ("Paris", "note one", "Madrid", "note two", "Rome")
    solved = asyncio.run(rollout(capitals(script), Countries(), early()).run(plan()))
    unsolved = Countries(rewards=(0.0, 0.0, 0.0))
    failed = replace(asyncio.run(rollout(capitals(script), unsolved, early()).run(plan())), member=1)
    tried = 0
    for name in ESTIMATORS:
        estimator = ESTIMATORS.parse(name)
        if isinstance(estimator, CriticEstimator) or not isinstance(estimator, Estimator):
            continue
        first, second = estimator([solved, failed])
        assert first is not None and second is not None and len(first) == len(second) == 5, name
        rows = rows_of(solved, first)
        assert sum(int(row.action_mask.sum()) for row in rows) == solved.num_action_tokens
        tried += 1
    assert tried >= 4
    TrajectoryWriter(tmp_path).write(1, [solved])
    (stored,) = TrajectoryReader(tmp_path)
    assert [turn.text for turn in stored.trajectory.turns] == [turn.text for turn in solved.turns]
    assert checksum_rows(rows_of(stored.trajectory, [0.0] * 5)) == solved.metrics[ENGINE_CHECKSUM]


def test_a_writers_model_is_loaded_as_any_model() -> None:
    small = {"preset": "tiny", "hidden_size": 16, "num_layers": 1, "num_heads": 2}
    messages = [Message("user", "hello there")]
    first, second = (asyncio.run(load_writer(small, "cpu").write(messages, 6, 1)) for _ in range(2))
    assert first == second and first
    short = load_writer(small | {"max_positions": 64}, "cpu")  # what the model has no positions for is cut out
    assert asyncio.run(short.write([Message("user", "hello there " * 80)], 6, 1))
    with pytest.raises(InputError, match=r"context\.model\.presett"):
        load_writer({"presett": "tiny"}, "cpu")
