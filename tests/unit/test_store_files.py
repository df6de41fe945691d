"""Partitions on disk: whole or absent, replaced on rewrite, readable by others, honest errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.store import SCHEMA, TrajectoryReader, TrajectoryWriter, find_stores, schema
from rllib_agentic.trajectory import FinishReason, LegalTokens, Message, Task, ToolCall, Trajectory, Turn


def i32(*ids: int) -> np.ndarray:
    return np.array(ids, np.int32)


def solved(index: int = 0, text: str = "иди 東へ") -> Trajectory:
    first = Turn(
        context_ids=i32(1, 2, 3),
        action_ids=i32(4, 5),
        logprobs=np.array([-0.1, -2.5], np.float32),
        policy_versions=i32(6, 6),
        finish_reason=FinishReason.STOP,
        segment=0,
        text=text,
        observation=(Message("user", "стена"),),
        reward=0.25,
        rewards={"format": 0.25},
        legal_tokens=LegalTokens(i32(0, 2, 2), i32(4, 9)),
    )
    second = Turn(
        context_ids=i32(7),
        action_ids=i32(8),
        logprobs=np.array([-0.3], np.float32),
        policy_versions=i32(7),
        finish_reason=FinishReason.LENGTH,
        segment=0,
        text="ok",
        reward=1.0,
    )
    call = ToolCall("найти", {"город": "Москва"})
    prompt = (Message("system", "s"), Message("assistant", "", tool_calls=(call,)))
    return Trajectory(
        Task("frozenlake", "train", index, 5), f"g{index}", 0, prompt, (first, second), True, False, True, "terminated"
    )


def broken(kind: str = "session_lost") -> Trajectory:
    return Trajectory(Task("frozenlake", "train", 1), "g1", 1, (), (), False, False, False, kind, kind)


def test_pandas_reads_a_store_without_our_help(tmp_path: Path) -> None:
    writer = TrajectoryWriter(tmp_path)
    writer.write(1, [solved(), broken()], kept=[True, False], advantages=[[0.5, np.array([-1.0])], None])
    writer.write(2, [solved(3)])
    frame = pd.read_parquet(tmp_path)
    assert list(frame.iteration.astype(int)) == [1, 1, 1, 2, 2]
    assert list(frame.trajectory) == [0, 0, 1, 0, 0]
    assert frame.turn.isna().tolist() == [False, False, True, False, False]
    assert list(frame.action_ids[0]) == [4, 5] and list(frame.logprobs[0]) == [np.float32(-0.1), np.float32(-2.5)]
    assert list(frame.advantages[0]) == [0.5, 0.5] and list(frame.advantages[1]) == [-1.0]
    assert frame.text[0] == "иди 東へ" and '"стена"' in frame.observation[0] and "Москва" in frame.prompt[0]
    assert json.loads(frame.prompt[0])[1]["tool_calls"] == [{"name": "найти", "arguments": {"город": "Москва"}}]
    assert frame.total_reward.tolist() == [1.25, 1.25, 0.0, 1.25, 1.25]
    assert list(frame.columns[:-1]) == SCHEMA.names
    assert list(pd.read_parquet(tmp_path / "iteration=000002" / "part-0.parquet", partitioning=None).trajectory) == [
        0,
        0,
    ]


def test_rewriting_an_iteration_replaces_it_and_counts_the_attempt(tmp_path: Path) -> None:
    writer = TrajectoryWriter(tmp_path)
    writer.write(12, [solved(1), solved(2)])
    file = TrajectoryWriter(tmp_path).write(12, [solved(9)])
    (stored,) = TrajectoryReader(tmp_path)
    assert (stored.trajectory.task.index, stored.attempt, stored.iteration) == (9, 2, 12)
    assert [p.name for p in file.parent.iterdir()] == ["part-0.parquet"]
    assert pq.read_schema(file).metadata[b"attempt"] == b"2"


def test_a_write_that_dies_leaves_the_old_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TrajectoryWriter(tmp_path)
    writer.write(3, [solved(1)])

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(InfrastructureError, match="No space left") as caught:
        writer.write(3, [solved(2)])
    assert caught.value.kind == "store_unwritable"
    assert [s.trajectory.task.index for s in TrajectoryReader(tmp_path)] == [1]


def test_partial_files_are_ignored_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = TrajectoryWriter(tmp_path).write(1, [solved()])
    content = whole.read_bytes()
    (whole.parent / ".part-0.parquet.99.tmp").write_bytes(content[:100])
    cut = tmp_path / "iteration=000002" / "part-0.parquet"
    cut.parent.mkdir()
    cut.write_bytes(content[: len(content) // 2])
    reader = TrajectoryReader(tmp_path)
    assert reader.iterations == [1] and len(list(reader)) == 1
    assert ".part-0.parquet.99.tmp" in caplog.text and "iteration=000002" in caplog.text


def test_a_folder_without_trajectories_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        TrajectoryReader(tmp_path / "absent")
    (tmp_path / "iteration=000001").mkdir()
    with pytest.raises(InputError, match="holds none"):
        TrajectoryReader(tmp_path)


def test_a_newer_schema_is_refused_by_name(tmp_path: Path) -> None:
    file = TrajectoryWriter(tmp_path).write(1, [solved()])
    table = pq.read_table(file, partitioning=None)
    pq.write_table(table.replace_schema_metadata({"schema_version": "99"}), file)
    with pytest.raises(InputError, match="schema version 99"):
        TrajectoryReader(tmp_path)


def test_selection_by_iteration_success_and_invalid(tmp_path: Path) -> None:
    writer = TrajectoryWriter(tmp_path)
    writer.write(10, [broken()])
    writer.write(2, [solved(), broken("env_unreachable")])
    reader = TrajectoryReader(tmp_path)
    names = [(s.iteration, s.number) for s in reader]
    assert names == [(2, 0), (2, 1), (10, 0)]
    assert [s.number for s in reader.select(success=True)] == [0]
    assert [(s.iteration, s.number) for s in reader.select(invalid=True)] == [(2, 1), (10, 0)]
    assert [(s.iteration, s.number) for s in reader.select(iterations=[10, 77])] == [(10, 0)]
    assert reader.get(2, 1).trajectory.invalid == "env_unreachable"
    with pytest.raises(InputError, match="stored: 2, 10"):
        reader.get(3, 0)
    with pytest.raises(InputError, match="holds 2 trajectories"):
        reader.get(2, 2)


def test_overview_is_one_line_a_trajectory(tmp_path: Path) -> None:
    TrajectoryWriter(tmp_path).write(4, [solved(), broken()])
    frame = TrajectoryReader(tmp_path).overview()
    assert frame[["iteration", "trajectory", "env", "num_turns", "success"]].values.tolist() == [
        [4, 0, "frozenlake", 2, True],
        [4, 1, "frozenlake", 0, False],
    ]
    assert "text" not in frame and frame.invalid.isna().tolist() == [True, False]


def test_an_iteration_without_trajectories_is_stored_too(tmp_path: Path) -> None:
    TrajectoryWriter(tmp_path).write(0, [])
    reader = TrajectoryReader(tmp_path)
    assert reader.iterations == [0] and list(reader) == [] and len(reader.overview()) == 0


def test_stores_are_found_below_an_experiment(tmp_path: Path) -> None:
    for trial in ("trial_b", "trial_a"):
        TrajectoryWriter(tmp_path / trial / "trajectories").write(1, [solved()])
    assert [p.parent.name for p in find_stores(tmp_path)] == ["trial_a", "trial_b"]
    assert find_stores(tmp_path / "trial_a" / "trajectories") == [tmp_path / "trial_a" / "trajectories"]
    assert find_stores(tmp_path / "absent") == []


def test_odd_values_from_environments_do_not_stop_the_run(tmp_path: Path) -> None:
    turn = solved().turns[0]
    odd = Turn(
        turn.context_ids,
        turn.action_ids,
        turn.logprobs,
        turn.policy_versions,
        turn.finish_reason,
        0,
        text="half \ud83d",
        observation=(Message("user", "half \ud83d"),),
        metrics={"n": np.float32(1.5), "path": Path("a"), "ids": np.arange(2), "bad": float("nan")},
    )
    trajectory = Trajectory(Task("e", "s", 0), "g", 0, (), (odd,), True, False, False, "terminated")
    TrajectoryWriter(tmp_path).write(1, [trajectory])
    (got,) = TrajectoryReader(tmp_path).get(1, 0).trajectory.turns
    assert got.text == "half \ufffd"
    assert got.observation[0].content == "half \ud83d"
    assert got.metrics["n"] == 1.5 and got.metrics["path"] == "a" and got.metrics["ids"] == [0, 1]
    assert np.isnan(got.metrics["bad"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kept": [True]}, "kept for 1"),
        ({"advantages": [None]}, "advantages for 1"),
        ({"advantages": [[0.0], None]}, "2 turns, but 1 advantages"),
    ],
)
def test_arguments_of_other_lengths_are_refused(tmp_path: Path, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrajectoryWriter(tmp_path).write(1, [solved(), broken()], **arguments)


def test_every_column_is_documented() -> None:
    documented = (Path(__file__).parents[2] / "docs" / "store.md").read_text()
    for name in SCHEMA.names:
        assert f"`{name}`" in documented, name
        assert name in (schema.__doc__ or ""), name
