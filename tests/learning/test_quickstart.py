"""The main job: one command trains an agent from random weights and shows that it learned."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.ray
@pytest.mark.slow
def test_the_quickstart_learns(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "rllib_agentic.cli.main", "train", "file"),
            *(str(ROOT / "tuned_examples" / "quickstart.yaml"), "--seed", "1", "--json"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    answer = json.loads(done.stdout)
    (trial,) = answer["trials"]
    metrics = trial["metrics"]
    assert done.returncode == 0, done.stderr
    assert metrics["evaluation_at_start/success_rate"] <= 0.4
    assert metrics["evaluation/success_rate"] >= 0.9
    assert trial["pass_criteria"]["evaluation/success_rate"]["met"]
    assert "success before" in done.stderr and (Path(trial["checkpoint"]).parent / "learning_curve.png").is_file()
