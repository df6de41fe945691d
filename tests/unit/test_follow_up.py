"""An experiment that begins where another one of its file ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rllib_agentic.algorithms.checkpoints import _CLASS_FILE, write_manifest
from rllib_agentic.cli.describe import check_model
from rllib_agentic.cli.experiment import Experiment, read_experiments
from rllib_agentic.cli.run_experiment import _start_of
from rllib_agentic.errors import InputError


def entry(tmp_path: Path, **more: Any) -> dict[str, Any]:
    config = {"model": {"preset": "tiny"}, "env_config": {"backend": "local"}}
    return {"run": "GRPO", "env": "bandit", "storage_path": str(tmp_path), "config": config, **more}


def read(entries: dict[str, Any]) -> list[Experiment]:
    return read_experiments(entries, "file.yaml")


def test_it_begins_from_the_last_checkpoint_of_the_one_before(tmp_path: Path) -> None:
    first, second = read({"start": entry(tmp_path), "main": entry(tmp_path, restore="start")})
    assert first.follows is None and second.follows is first
    check_model(second)  # the checkpoint need not be there yet
    with pytest.raises(InputError, match="no whole checkpoint"):
        _start_of(second)
    for number in (1, 2):
        folder = tmp_path / "start" / "trial" / f"checkpoint_00000{number}"
        folder.mkdir(parents=True)
        (folder / _CLASS_FILE).write_bytes(b"")
        write_manifest(folder)
    assert _start_of(second) == str(tmp_path / "start" / "trial" / "checkpoint_000002")
    assert _start_of(first) is None


def test_only_experiments_further_up_have_ended(tmp_path: Path) -> None:
    first, _ = read({"main": entry(tmp_path, restore="start"), "start": entry(tmp_path)})
    assert first.follows is None
    with pytest.raises(InputError, match="'start' is no experiment further up in the same file"):
        check_model(first)
