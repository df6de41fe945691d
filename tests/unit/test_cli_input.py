"""Bad input to the command: one clear message, exit code 2, nothing started."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rllib_agentic.cli.experiment import read_experiments
from rllib_agentic.cli.main import main
from rllib_agentic.cli.outcome import judge
from rllib_agentic.cli.train_options import json_mapping
from rllib_agentic.cli.yaml_file import read_experiment_file
from rllib_agentic.errors import InputError

GOOD = """\
# An experiment
one:
  run: GRPO
  env: frozenlake
  stop: {training_iteration: 3}
  pass_criteria: {evaluation/success_rate: 0.5}
  config:
    lr: 1e-4
    env_config: {backend: local}
    evaluation_interval: 1
"""


def written(folder: Path, text: str, name: str = "x.yaml") -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


def failing(capsys: Any, *arguments: str) -> str:
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err and captured.err.startswith("error: ")
    return captured.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n- b\n", ["expected a mapping", "list"]),
        ("just text", ["expected a mapping", "str"]),
        ("", ["expected a mapping"]),
        ("a: [1", ["no valid YAML"]),
        ("a: {run: GRPO}\na: {run: GRPO}\n", ["comes twice"]),
        ("rollout:\n  max_turn: 10\nlearning_rate: 1e-6\n", ["max_turn", "max_turns", "learning_rate"]),  # UX01
        (GOOD.replace("GRPO", "GRPPO"), ["GRPPO", "'GRPO'"]),
        (GOOD.replace("frozenlake", "frozenlak"), ["frozenlak", "'frozenlake'"]),
        (GOOD.replace("lr: 1e-4", "lr: fast"), ["lr", "'fast'"]),
        (GOOD.replace("lr: 1e-4", "learning_rate: 1e-4"), ["learning_rate", "'lr'"]),
        (GOOD.replace("stop:", "stopp:"), ["stopp", "'stop'"]),
        (GOOD.replace("training_iteration: 3", "episode_reward_mean: 3"), ["env_runners/episode_return_mean"]),
        (GOOD + "  local_dir: here\n", ["local_dir", "storage_path"]),
        (GOOD + "  checkpoint_freq: 5\n", ["checkpoint_frequency"]),
        (GOOD.replace("lr: 1e-4", "model: {path: /no/such/folder}"), ["/no/such/folder"]),
        (GOOD.replace("{backend: local}", "{url: 'http://127.0.0.1:9/x'}"), ["http://127.0.0.1:9/x"]),
        (GOOD.replace("{backend: local}", "{backend: local, split: trian}"), ["trian", "'train'"]),
        (GOOD.replace("{backend: local}", "{backend: local, args: {sizes: 3}}"), ["sizes", "'size'"]),
    ],
)
def test_a_bad_file_is_explained(tmp_path: Path, capsys: Any, text: str, words: list[str]) -> None:
    message = failing(capsys, "train", "file", written(tmp_path, text))
    assert all(word in message for word in words), message


def test_all_faults_of_all_experiments_come_at_once(tmp_path: Path, capsys: Any) -> None:
    two = GOOD.replace("lr: 1e-4", "lrr: 1") + GOOD.replace("one:", "two:").replace("GRPO", "PPOO")
    message = failing(capsys, "train", "file", written(tmp_path, two))
    assert "one: config.lrr" in message and "two: run:" in message


TRAIN = ["train", "--algo", "GRPO", "--env", "frozenlake", "--config", '{"env_config": {"backend": "local"}}']


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["train", "file", "no/such.yaml"], "no such file"),
        (["train"], "--algo"),
        (["train", "--algo", "GRPO", "--env", "frozenlake", "--stop", "{"], "no JSON"),
        (["train", "--algo", "GRPO", "--env", "frozenlake", "--stop", "[1]"], "JSON object"),
        (["train", "--algo", "GRPO", "--env", "frozenlake", "--config", '{"rollout": {"max_turn": 2}}'], "max_turns"),
        (["train", "--algo", "GRPO", "--env", "frozenlake", "--framework", "tf2"], "torch"),
        (["train", "--algo", "GRPO", "--env", "frozenlake", "--resume", "--storage-path", "nowhere"], "--resume"),
        (["train", "--algo", "GRPO", "--env", "frozenlake", "--restore", "no/such"], "no folder with a checkpoint"),
        ([*TRAIN, "--stop", '{"evaluation/success_rate": 0.9}'], "evaluation_interval"),
        ([*TRAIN, "--stop", '{"training_iteration": "three"}'], "expected a number or an integer or true or false"),
        ([*TRAIN, "--ray-address", "127.0.0.1:9"], "nothing answers"),
        ([*TRAIN, "--ray-address", "ray://127.0.0.1:9"], "nothing answers"),
        ([*TRAIN, "--ray-address", "127.0.0.1:9", "--ray-num-cpus", "2"], "--ray-address"),
        (["evaluate", "no/such"], "checkpoint here"),
        (["evaluate", "no/such", "--steps", "0"], "--steps"),
        (["evaluate", "no/such", "--save-info"], "--out"),
        (["evaluate", "no/such", "--out", "no/such/place.json"], "no folder"),
        (["evaluate", "expert"], "--env"),
        (["evaluate", "random", "--env", "wordle"], "random_action"),
        (["evaluate", "random", "--env", "maze", "--split", "tests"], "validation"),
        (["evaluate", "expert", "--env", "maze", "--algo", "GRPO"], "--algo"),
        (["evaluate", "expert", "--env", "maze", "--steps", "5"], "--episodes"),
        (["evaluate", "expert", "--env", "maze", "--config", '{"rollout": {"turns": 2}}'], "rollout.turns"),
        (["export", "no/such", "there"], "checkpoint here"),
        (["example", "get", "quickstrat"], "'quickstart'"),
        (["envs", "check", "frozen"], "frozenlake"),
        (["envs", "play", "frozenlake", "--task", "99999"], "99999"),
        (["envs", "play", "frozenlake", "--split", "tests"], "test"),
        (["trajectories", "list", "no/such"], "no/such"),
    ],
)
def test_bad_arguments_are_explained(capsys: Any, arguments: list[str], word: str) -> None:
    assert word in failing(capsys, *arguments)


def test_numbers_names_and_overrides_are_read_as_meant(tmp_path: Path) -> None:
    entries = read_experiment_file(written(tmp_path, GOOD))
    assert entries["one"]["config"]["lr"] == 1e-4
    (experiment,) = read_experiments(entries, "x", {"stop": {"training_iteration": 9}, "config": {"seed": 4}})
    assert experiment.settings.stop == {"training_iteration": 9}
    assert experiment.config is not None and (experiment.config.seed, experiment.config.lr) == (4, 1e-4)
    assert json_mapping("--stop", '{"a": 1}') == {"a": 1} and json_mapping("--stop", None) == {}


def test_search_spaces_wait_for_tune(tmp_path: Path) -> None:
    text = GOOD.replace("lr: 1e-4", "lr: {grid_search: [1.0e-4, 1.0e-3]}")
    (experiment,) = read_experiments(read_experiment_file(written(tmp_path, text)), "x")
    assert (
        experiment.is_sweep
        and experiment.config.lr == 1e-4
        and experiment.param_space["lr"] == {"grid_search": [1e-4, 1e-3]}
    )


def test_a_python_file_gives_its_config(tmp_path: Path) -> None:
    text = (
        "from rllib_agentic import GRPOConfig\n"
        "config = GRPOConfig().environment('frozenlake').env_runners(rollout={'max_turns': 7}).training(lr=1e-5)\n"
        "stop = {'training_iteration': 2}\n"
    )
    entries = read_experiment_file(written(tmp_path, text, "mine.py"))
    (experiment,) = read_experiments(entries, "mine.py")
    assert experiment.name == "mine" and experiment.config is not None
    assert (experiment.config.sections().rollout.max_turns, experiment.config.lr) == (7, 1e-5)
    with pytest.raises(InputError, match="`config`"):
        read_experiment_file(written(tmp_path, "x = 1\n", "none.py"))


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "x.yaml").write_text(GOOD)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_file_may_lie_at_a_url(web: str) -> None:
    assert read_experiment_file(f"{web}/x.yaml")["one"]["run"] == "GRPO"
    with pytest.raises(InputError, match="404"):
        read_experiment_file(f"{web}/y.yaml")


def test_pass_criteria_need_a_finite_number_that_is_large_enough() -> None:
    judged = judge({"a": 0.5, "b": 0.5, "c": 0.5, "d": 1.0}, {"a": 0.5, "b": 0.4, "d": float("nan")})
    assert {key: criterion.met for key, criterion in judged.items()} == {"a": True, "b": False, "c": False, "d": False}


def test_a_dry_run_starts_nothing_and_is_json_where_asked(tmp_path: Path, capsys: Any) -> None:
    assert main(["train", "file", written(tmp_path, GOOD), "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["config"]["rollout"]["group_size"] == 8 and plan["memory"]["learner_gb"] > 0
    assert not (tmp_path / "runs").exists()


def test_lists_are_json_where_asked(capsys: Any) -> None:
    assert main(["envs", "list", "--json"]) == 0
    envs = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert {"bandit", "frozenlake", "textcraft"} <= envs.keys() and envs["frozenlake"]["splits"]["test"] == 100
    assert main(["example", "list", "--json"]) == 0
    examples = json.loads(capsys.readouterr().out)
    assert all(row["about"] for row in examples) and "quickstart" in {row["id"] for row in examples}
    assert main(["doctor", "--json"]) in (0, 1)
    assert {"python", "ray", "torch"} <= {row["part"] for row in json.loads(capsys.readouterr().out)}


def test_an_episode_can_be_played_by_hand(capsys: Any, monkeypatch: Any) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("nonsense\nDown\n"))
    assert main(["envs", "play", "frozenlake", "--split", "test", "--task", "3"]) == 0
    assert capsys.readouterr().out.count("> ") == 3
