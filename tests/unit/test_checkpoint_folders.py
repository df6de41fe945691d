"""Which checkpoint a run goes on from: the newest whole one, whatever a crash left beside it (TK12)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rllib_agentic.algorithms.checkpoints import find_checkpoint, missing_part, write_manifest
from rllib_agentic.errors import InputError


def checkpoint(folder: Path, step: int, *, whole: bool = True) -> Path:
    place = folder / f"checkpoint_{step:06d}"
    (place / "learner_group").mkdir(parents=True)
    (place / "class_and_ctor_args.pkl").write_bytes(b"c" * 10)
    (place / "learner_group" / "state.pkl").write_bytes(b"w" * 1000)
    if whole:
        write_manifest(place)
    os.utime(place, (step, step))
    return place


def test_tk12_the_newest_whole_checkpoint_is_taken_and_the_others_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = checkpoint(tmp_path, 20)
    cut = checkpoint(tmp_path, 40)
    (cut / "learner_group" / "state.pkl").write_bytes(b"w" * 999)  # copied in part
    os.utime(cut, (40, 40))
    checkpoint(tmp_path, 60, whole=False)  # written in part
    assert find_checkpoint(tmp_path) == good.resolve()
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == 2 and "checkpoint_000060" in warned[0] and "manifest.json" in warned[0]
    assert "checkpoint_000040" in warned[1] and "learner_group/state.pkl" in warned[1]


def test_a_checkpoint_that_is_asked_for_by_name_must_be_whole(tmp_path: Path) -> None:
    place = checkpoint(tmp_path, 40)
    assert find_checkpoint(place) == place.resolve() and missing_part(place) is None
    (place / "learner_group" / "state.pkl").unlink()
    with pytest.raises(InputError, match=r"lacks learner_group/state\.pkl; use an earlier one"):
        find_checkpoint(place)
    (place / "manifest.json").write_text('{"a": ')
    with pytest.raises(InputError, match=r"part of manifest\.json"):
        find_checkpoint(place)
    with pytest.raises(InputError, match="no whole checkpoint here"):
        find_checkpoint(tmp_path)


def test_a_checkpoint_may_be_closed_again_and_moved(tmp_path: Path) -> None:
    place = checkpoint(tmp_path, 1)
    (place / "more.txt").write_text("more")
    write_manifest(place)
    moved = place.rename(tmp_path / "elsewhere")
    assert missing_part(moved) is None and find_checkpoint(moved) == moved.resolve()
