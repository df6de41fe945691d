"""``tuned_examples/torl_tiny_cpu.yaml`` from end to end, smaller: clone a beginner, then ToRL, in one command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rllib_agentic.cli.example import EXAMPLES
from rllib_agentic.sandbox.mending import working_isolations
from rllib_agentic.store import TrajectoryReader, find_stores

pytest.importorskip("math_verify")
pytestmark = [pytest.mark.ray, pytest.mark.slow]

START, MAIN = "torl-tiny-cpu-start", "torl-tiny-cpu"


def smaller() -> dict[str, Any]:
    """The file with two iterations of each, few easy problems, and a beginner who writes code more often than not."""
    file = yaml.safe_load((EXAMPLES / "torl_tiny_cpu.yaml").read_text(encoding="utf-8"))
    start, main = file[START], file[MAIN]
    for entry in (start, main):
        args = entry["config"]["env_config"]["args"]
        args |= {"tasks": {"type": "generated", "topics": ["arithmetic"], "levels": [1]}, "train": 80, "test": 16}
    start["config"]["env_config"]["args"]["novice"] |= {"code": 0.9}
    start["config"]["offline"] |= {"collect": {"policy": "expert", "episodes": 80}, "trajectories_per_iteration": 640}
    start["config"]["learner"] |= {"minibatches": 40, "warmup_steps": 10, "decay_steps": 80}
    start["stop"], main["stop"] = {"training_iteration": 2}, {"training_iteration": 4}
    main["pass_criteria"] = {}
    main["config"]["rollout"] |= {"group_size": 4, "groups_per_iteration": 4}
    main["config"] |= {"evaluation_duration": 16, "evaluation_interval": 2}
    return file


def test_the_second_experiment_goes_on_from_the_first_and_reports_the_papers_metrics(tmp_path: Path) -> None:
    working, faults = working_isolations()
    if not working:
        pytest.skip(f"NOT TESTED: {'; '.join(faults)}")
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(smaller(), sort_keys=False), encoding="utf-8")
    command = ["train", "file", "small.yaml", "--ray-num-cpus", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "rllib_agentic.cli.main", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (results,) = (tmp_path / "runs" / MAIN).glob("*/result.json")
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert [row["training_iteration"] for row in rows] == [3, 4], "the iterations of the first count on"
    before, after = rows[0]["evaluation_at_start"], rows[-1]["evaluation"]
    assert before["env/code_used"] > 0, "the clone writes code; random weights would never"
    for result in (before, after):
        assert {"success_rate", "success_rate_low", "code_success_rate", "env/code_runs", "env/code_corrected"} <= set(
            result
        )
    (store,) = find_stores(tmp_path / "runs")
    stored = [entry.trajectory for entry in TrajectoryReader(store)]
    assert len(stored) == 32, "four groups of four, twice; what was cloned is not stored"
    assert {turn.rewards["outcome"] for t in stored for turn in t.turns[-1:]} <= {1.0, -1.0}
