"""Every command and every program of the README runs as written, and the programs of the pages that it leads to."""

import json
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
README = "README.md"
# Run elsewhere: these by `.ci/run` itself, the quickstart by tests/learning/test_quickstart.py.
ELSEWHERE = {"make quickstart", "make test", "rllib train file tuned_examples/quickstart.yaml"}


def blocks(language: str, page: str = README) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


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
def test_commands_and_the_pages_about_what_they_leave(folder: Path) -> None:
    found = commands()
    assert len(found) >= 6
    for command in found:
        program, *arguments = shlex.split(command)
        assert program == "rllib", command
        assert run(folder, "-m", "rllib_agentic.cli.main", *arguments), command
    (trial,) = {file.parent for file in folder.glob("runs/*/*/mlflow_run.json")}
    assert "iteration" in run(trial, "-c", "\n".join(blocks("python", "docs/store.md")))
    run_id = json.loads((trial / "mlflow_run.json").read_text())["run_id"]
    program = "\n".join(
        ["import mlflow", f"run_id = {run_id!r}", *blocks("python", "docs/tracking.md"), "print(points)"]
    )
    assert "env_runners/success_rate" in run(folder / "runs", "-c", program)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_programs(folder: Path, number: int) -> None:
    assert 0.0 <= float(run(folder, "-c", blocks("python")[number]).strip().splitlines()[-1]) <= 1.0


@pytest.mark.ray
@pytest.mark.slow
def test_the_programs_of_the_page_about_python(folder: Path) -> None:
    printed = run(folder, "-c", "\n".join(blocks("python", "docs/python.md"))).strip().splitlines()
    low, rate, high = map(float, printed[-3].split())
    assert low <= rate <= high and float(printed[-1]) > 0


def test_the_yaml_in_full_is_one(folder: Path) -> None:
    (text,) = blocks("yaml")
    (folder / "full.yaml").write_text(text)
    (experiment,) = read_experiments(read_experiment_file(str(folder / "full.yaml")), "README.md")
    assert experiment.config is not None
    assert experiment.config.sections().curriculum.max_turns == (10, 20, 30)
