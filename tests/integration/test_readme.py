"""Every command and every program of the README runs as written."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rllib_agentic.cli.experiment import read_experiments
from rllib_agentic.cli.yaml_file import read_experiment_file

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Run elsewhere: these by `.ci/run` itself, the quickstart by tests/learning/test_quickstart.py.
ELSEWHERE = {"make quickstart", "make test", "rllib train file tuned_examples/quickstart.yaml"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    lines = [line.split("   #")[0].strip() for block in blocks("bash") for line in block.splitlines()]
    return [line for line in lines if line and line not in ELSEWHERE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    place = tmp_path_factory.mktemp("readme")
    (place / "tuned_examples").symlink_to(ROOT / "tuned_examples")
    return place


@pytest.mark.ray
@pytest.mark.slow
def test_commands(folder: Path) -> None:
    found = commands()
    assert len(found) >= 6
    for command in found:
        program, *arguments = shlex.split(command)
        assert program == "rllib", command
        done = subprocess.run(
            [sys.executable, "-m", "rllib_agentic.cli.main", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0 and done.stdout, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_programs(folder: Path, number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", blocks("python")[number]],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert 0.0 <= float(done.stdout.strip().splitlines()[-1]) <= 1.0


def test_the_yaml_in_full_is_one(folder: Path) -> None:
    (text,) = blocks("yaml")
    (folder / "full.yaml").write_text(text)
    (experiment,) = read_experiments(read_experiment_file(str(folder / "full.yaml")), "README.md")
    assert experiment.config is not None
    assert experiment.config.sections().curriculum.max_turns == (10, 20, 30)


def test_files_that_are_linked_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
