"""What the store gives back is what it was given: ids, float32 bits, texts, nulls, empty lists."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rllib_agentic.store import TrajectoryReader, TrajectoryWriter
from rllib_agentic.trajectory import FinishReason, LegalTokens, Message, Task, ToolCall, Trajectory, Turn

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=12)
FLOAT = st.floats(allow_nan=False)
FLOAT32 = st.floats(width=32, allow_nan=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | FLOAT | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(TEXT, JSON, max_size=3)
MESSAGE = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=TEXT,
    reasoning=st.none() | TEXT,
    tool_calls=st.lists(st.builds(ToolCall, TEXT, ARGUMENTS), max_size=2).map(tuple),
    name=st.none() | TEXT,
)
MESSAGES = st.lists(MESSAGE, max_size=3).map(tuple)


def ids(size: int | None = None) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.int32, st.integers(0, 5) if size is None else size, elements=INT32)


@st.composite
def legal_tokens(draw: st.DrawFn, positions: int) -> LegalTokens:
    counts = draw(st.lists(st.integers(0, 3), min_size=positions, max_size=positions))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return LegalTokens(offsets, draw(ids(int(offsets[-1]))))


@st.composite
def turns(draw: st.DrawFn, sampled: int) -> Turn:
    return Turn(
        context_ids=draw(ids()),
        action_ids=draw(ids(sampled)),
        logprobs=draw(hnp.arrays(np.float32, sampled, elements=FLOAT32)),
        policy_versions=draw(ids(sampled)),
        finish_reason=draw(st.sampled_from(FinishReason)),
        segment=draw(st.integers(0, 4)),
        text=draw(TEXT),
        observation=draw(MESSAGES),
        reward=draw(FLOAT),
        rewards=draw(st.dictionaries(TEXT, FLOAT, max_size=2)),
        legal_tokens=draw(st.none() | legal_tokens(sampled)),
        state_key=draw(st.none() | TEXT),
        metrics=draw(ARGUMENTS),
    )


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    invalid = draw(st.none() | st.sampled_from(["session_lost", "ключ"]))
    sizes = draw(st.lists(st.integers(0, 4), max_size=3))
    if invalid is None:
        sizes = [*sizes, 2]
    terminated = draw(st.booleans())
    return Trajectory(
        task=Task(draw(TEXT), draw(TEXT), draw(INT32), draw(st.integers(0, 2**63 - 1))),
        group_id=draw(TEXT),
        member=draw(st.integers(0, 100)),
        prompt=draw(MESSAGES),
        turns=tuple(draw(turns(n)) for n in sizes),
        terminated=terminated,
        truncated=draw(st.booleans()) and not terminated,
        success=draw(st.booleans()),
        end_reason=draw(TEXT),
        invalid=invalid,
        metrics=draw(ARGUMENTS),
    )


def assert_same(got: Any, wanted: Any) -> None:
    """Deep equality: arrays by dtype and bits, everything else by type and value."""
    if isinstance(wanted, np.ndarray):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape and got.tobytes() == wanted.tobytes()
    elif hasattr(wanted, "__dataclass_fields__"):
        assert type(got) is type(wanted)
        for name in wanted.__dataclass_fields__:
            assert_same(getattr(got, name), getattr(wanted, name))
    elif isinstance(wanted, tuple):
        assert isinstance(got, tuple) and len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            assert_same(a, b)
    else:
        assert type(got) is type(wanted) and got == wanted


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_what_is_read_is_what_was_written(data: st.DataObject) -> None:
    batch = data.draw(st.lists(trajectories(), max_size=4))
    kept = data.draw(st.none() | st.lists(st.booleans(), min_size=len(batch), max_size=len(batch)))
    advantages = [
        data.draw(st.none() | st.tuples(*(hnp.arrays(np.float32, len(turn.action_ids)) for turn in t.turns)))
        if t.turns
        else None
        for t in batch
    ]
    with tempfile.TemporaryDirectory() as folder:
        TrajectoryWriter(folder).write(7, batch, kept=kept, advantages=advantages)
        stored = list(TrajectoryReader(folder))
    assert [(s.iteration, s.number, s.attempt) for s in stored] == [(7, i, 1) for i in range(len(batch))]
    assert [s.kept for s in stored] == (kept if kept is not None else [None] * len(batch))
    for record, trajectory, trained in zip(stored, batch, advantages, strict=True):
        assert_same(record.trajectory, trajectory)
        assert_same(record.advantages, trained)
