"""`rllib train` as a user runs it: a process of its own, an experiment on Serve, Ctrl-C, resume, and what is left."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

YAML = """\
# A small run
small:
  run: GRPO
  env: frozenlake
  stop: {training_iteration: 4}
  pass_criteria: {evaluation/success_rate: 0.0, env_runners/success_rate: 2.0}
  checkpoint_config: {checkpoint_frequency: 1}
  config:
    env_config: {backend: %s}
    model: {preset: tiny, hidden_size: 32, num_layers: 2}
    rollout: {group_size: 4, groups_per_iteration: 4, max_turns: 4}
    evaluation_interval: 3
    evaluation_duration: 8
    evaluation_at_start: true
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    place = tmp_path_factory.mktemp("cli")
    (place / "served.yaml").write_text(YAML % "serve")
    (place / "long.yaml").write_text(
        (YAML % "local").replace("small:", "long:").replace("training_iteration: 4", "training_iteration: 4000")
    )
    return place


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rllib_agentic.cli.main", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    process = start(folder, *arguments)
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def test_a_run_on_serve_from_start_to_end(folder: Path) -> None:
    code, out, err = run(folder, "train", "file", "served.yaml", "--json", "--ray-num-cpus", "2")
    answer = json.loads(out)  # one line, nothing else on standard output
    (trial,) = answer["trials"]
    assert (code, answer["experiment"], trial["status"], trial["iterations"]) == (1, "small", "finished", 4), err
    criteria = trial["pass_criteria"]
    assert criteria["evaluation/success_rate"]["met"] and criteria["evaluation/success_rate"]["wanted"] == 0.0
    assert not criteria["env_runners/success_rate"]["met"] and criteria["env_runners/success_rate"]["got"] <= 1.0
    assert "success before" in err and "iteration 4/4" in err and "Traceback" not in err
    place = Path(trial["checkpoint"]).parent
    assert (place / "learning_curve.png").stat().st_size > 1000
    stored = pd.read_parquet(place / "trajectories")
    assert stored["iteration"].nunique() == 4

    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{folder / 'runs' / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("small").experiment_id])
    assert found.info.status == "FINISHED" and found.data.params["rollout.group_size"] == "4"
    assert len(client.get_metric_history(found.info.run_id, "env_runners/success_rate")) == 4

    again, out, err = run(folder, "train", "file", "served.yaml", "--json")
    assert again == 1 and json.loads(out)["trials"] == answer["trials"] and "--restart" in err

    (folder / "other.yaml").write_text((folder / "served.yaml").read_text().replace("max_turns: 4", "max_turns: 5"))
    refused, out, err = run(folder, "train", "file", "other.yaml")
    assert refused == 2 and "rollout.max_turns: 4 -> 5" in err  # TK10

    options = ["--split", "test", "--json", "--out", "result.json", "--save-info"]
    code, out, err = run(folder, "evaluate", "runs/small", "--episodes", "5", *options)
    result = json.loads(out)
    assert code == 0, err
    written = json.loads((folder / "result.json").read_text())
    assert {key: written[key] for key in result} == result
    assert [e["task"]["split"] for e in written["episodes"]] == ["test"] * 5
    assert all(turn["spans"][1]["text"] for e in written["episodes"] for s in e["segments"] for turn in s["turns"])
    assert (result["num_episodes"], result["split"], result["training_iteration"]) == (5, "test", 4)

    code, out, err = run(folder, "trajectories", "show", "runs/small", "3", "--json")
    shown = json.loads(out)
    assert code == 0 and {"segments", "reward"} <= shown.keys()  # UX05
    code, out, err = run(folder, "export", "runs/small", "exported")
    assert code == 0, err

    from transformers import AutoModelForCausalLM

    assert AutoModelForCausalLM.from_pretrained(folder / "exported").config.hidden_size == 32


def test_ctrl_c_saves_exits_130_and_the_same_command_goes_on(folder: Path) -> None:
    process = start(folder, "train", "file", "long.yaml", "--ray-num-cpus", "2")
    assert process.stdout is not None
    for line in process.stdout:
        if "iteration 2/" in line:
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "interrupted after iteration" in out and "Traceback" not in err
    done = max(int(p.name.split("=")[1]) for p in folder.glob("runs/long/*/trajectories/iteration=*"))
    _, out, err = run(
        folder,
        "train",
        "file",
        "long.yaml",
        "--stop",
        json.dumps({"training_iteration": done + 2}),
        "--resume",
        "--json",
    )
    (trial,) = json.loads(out)["trials"]
    assert trial["iterations"] == done + 2, err

    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{folder / 'runs' / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("long").experiment_id])
    steps = [m.step for m in client.get_metric_history(found.info.run_id, "training_iteration")]
    assert sorted(set(steps)) == list(range(1, done + 3))  # one run, no gap
    shutil.rmtree(folder / "runs" / "long")


def test_a_run_that_fails_says_why_and_exits_with_1(folder: Path) -> None:
    text = (
        (YAML % "local")
        .replace("small:", "failing:")
        .replace("max_turns: 4", "max_turns: 4, max_context_tokens: 20, max_tokens_per_turn: 4")
    )
    (folder / "failing.yaml").write_text(text)
    code, out, _ = run(folder, "train", "file", "failing.yaml", "--json")
    (trial,) = json.loads(out)["trials"]
    assert code == 1 and trial["status"] == "failed" and "prompt_too_long" in trial["error"]

    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{folder / 'runs' / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("failing").experiment_id])
    assert found.info.status == "FAILED"  # TK07
