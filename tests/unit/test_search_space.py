"""Search spaces in files: read, listed, filled, checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.tune.search.sample import Categorical, Domain, Float, Integer
from ray.tune.search.variant_generator import generate_variants

from rllib_agentic.cli.experiment import Experiment, read_experiments
from rllib_agentic.cli.outcome import TrialOutcome
from rllib_agentic.cli.places import at, fill, searched, short_names
from rllib_agentic.cli.report import report
from rllib_agentic.cli.schedulers import make_scheduler
from rllib_agentic.cli.search_space import count_trials, examples, read_space
from rllib_agentic.cli.sweep_report import write_sweep
from rllib_agentic.cli.train_experiments import TrainOptions
from rllib_agentic.cli.yaml_file import read_experiment_file
from rllib_agentic.errors import InputError
from rllib_agentic.tracking.history import append_history

CONFIG: dict[str, Any] = {
    "lr": "tune.loguniform(1e-5, 1e-3)",
    "rollout": {"group_size": 4, "max_turns": {"grid_search": [5, 10, 20]}},
    "filters": [{"type": "reward_variance", "p": "tune.choice([0.5, 0.9])"}],
    "seed": {"grid_search": [0, 1]},
}


def experiment(**changes: Any) -> Experiment:
    entry = {"run": "GRPO", "env": "bandit", "config": CONFIG, **changes}
    (read,) = read_experiments({"sweep": entry}, "file.yaml")
    return read


def test_domains_are_read_at_any_depth() -> None:
    space = read_space(CONFIG)
    lr, p = space["lr"], space["filters"][0]["p"]
    assert isinstance(lr, Float) and (lr.lower, lr.upper) == (1e-5, 1e-3) and lr.is_valid(1e-4)
    assert isinstance(p, Categorical) and p.categories == [0.5, 0.9]
    assert isinstance(read_space("tune.qrandint(2, 10, q=2)"), Integer)
    assert read_space({"a": ["tuned", 3, None, True, "x.uniform(0, 1)"]}) == {
        "a": ["tuned", 3, None, True, "x.uniform(0, 1)"]
    }
    assert [path for path, _ in searched(space)] == [("lr",), ("rollout", "max_turns"), ("filters", 0, "p"), ("seed",)]


def test_tune_makes_the_trials_that_are_counted() -> None:
    space = read_space(CONFIG)
    for samples in (1, 3):
        made = sum(1 for _ in range(samples) for _ in generate_variants(space))
        assert count_trials(space, samples) == made == 6 * samples
    for _, config in generate_variants(space):
        assert not searched(config) and config["filters"][0]["p"] in (0.5, 0.9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tune.unifrom(0, 1)", r"config\.lr: 'tune\.unifrom' cannot be used in a file\. Did you mean 'uniform'"),
        ("tune.uniform(0, 1", "cannot read"),
        ("tune.uniform", "expected a call"),
        ("tune.uniform()", "missing 2 required positional arguments"),
        ("tune.loguniform(0, 1)", "tune.loguniform"),
        ("tune.choice(open('/etc/passwd'))", "malformed"),
        ("tune.search.sample_from(1)", "cannot be used in a file"),
        ("tune.run('x')", "cannot be used in a file"),
    ],
)
def test_mistakes_are_explained(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_space({"lr": text})


def test_every_listed_value_is_an_example_and_the_rest_is_in_range() -> None:
    found = list(examples(read_space(CONFIG)))
    assert len(found) == 1 + 2 + 1 + 1  # the first, two more budgets, one more p, one more seed
    assert {config["rollout"]["max_turns"] for config in found} == {5, 10, 20}
    assert {config["filters"][0]["p"] for config in found} == {0.5, 0.9}
    assert all(1e-5 <= config["lr"] <= 1e-3 and not searched(config) for config in found)
    assert list(examples({"a": 1})) == [{"a": 1}]
    for text in ("tune.randint(3, 4)", "tune.randn(0, 1)", "tune.quniform(0, 1, 0.5)", "tune.lograndint(1, 100)"):
        (one,) = examples({"x": read_space(text)})
        assert not isinstance(one["x"], Domain)


def test_filling_leaves_the_rest_and_the_original_alone() -> None:
    filled = fill(CONFIG, {("lr",): 0.5, ("filters", 0, "p"): 0.7})
    assert filled["lr"] == 0.5 and filled["filters"] == [{"type": "reward_variance", "p": 0.7}]
    assert filled["seed"] == {"grid_search": [0, 1]} and CONFIG["lr"].startswith("tune.")
    assert at(filled, ("filters", 0, "p")) == 0.7


def test_names_for_people_are_short_and_different() -> None:
    paths = [("lr",), ("filters", 0, "p"), ("filters", 1, "p"), ("a", "b", "k"), ("c", "k")]
    names = short_names(paths)
    assert names == ["lr", "filters.0.p", "filters.1.p", "b.k", "c.k"] and len(set(names)) == 5


# --- experiments -----------------------------------------------------------------------------------------------------


def test_a_sweep_is_checked_value_by_value_before_it_starts() -> None:
    read = experiment(num_samples=2)
    assert read.is_sweep and read.num_trials == 12 and read.config.sections().rollout.max_turns == 5
    assert read.metric == "env_runners/success_rate"
    assert experiment(config={**CONFIG, "evaluation_interval": 1}).metric == "evaluation/success_rate"
    assert isinstance(read.param_space["lr"], Float) and read.param_space["env"] == "bandit"
    for changes, message in [
        ({"rollout": {"max_turns": {"grid_search": [5, 0]}}}, r"rollout\.max_turns: .*greater than or equal to 1"),
        ({"filters": [{"type": "reward_variance", "rule": {"grid_search": ["top_p", "top_q"]}}]}, "top_p"),
        ({"rollout": {"max_truns": {"grid_search": [5]}}}, "Did you mean 'max_turns'"),
        ({"lr": "tune.uniform(0)"}, "tune.uniform"),
    ]:
        with pytest.raises(InputError, match=message):
            experiment(config=changes)


def test_schedulers_by_name_with_their_arguments() -> None:
    asha = make_scheduler({"type": "ASHAScheduler", "max_t": 20, "grace_period": 2}, metric="m", mode="min")
    assert type(asha).__name__ == "AsyncHyperBandScheduler" and (asha.metric, asha._mode) == ("m", "min")  # type: ignore[attr-defined]
    pbt = make_scheduler(
        {"type": "pbt", "perturbation_interval": 2, "hyperparam_mutations": {"lr": "tune.loguniform(1e-5, 1e-3)"}},
        metric="m",
        mode="max",
    )
    assert isinstance(pbt._hyperparam_mutations["lr"], Float)  # type: ignore[attr-defined]
    assert pbt._time_attr == "training_iteration" and not pbt._require_attrs  # type: ignore[attr-defined]
    timed = make_scheduler({"type": "median_stopping_rule", "time_attr": "time_total_s"}, metric="m", mode="max")
    assert timed._time_attr == "time_total_s"  # type: ignore[attr-defined]
    assert type(make_scheduler(None, metric="m", mode="max")).__name__ == "FIFOScheduler"
    mistakes: list[tuple[Any, str]] = [
        ("ASHASchduler", "Did you mean 'ASHAScheduler'"),
        ({"type": "asha", "grace_perid": 2}, r"scheduler\.grace_perid: .*Did you mean 'grace_period'"),
        ({"type": "asha", "grace_period": 0}, "scheduler: asha"),
        ({"max_t": 3}, "unknown type None"),
    ]
    for spec, message in mistakes:
        with pytest.raises(InputError, match=message):
            make_scheduler(spec, metric="m", mode="max")
    with pytest.raises(InputError, match="Did you mean 'asha'"):
        experiment(scheduler="ash")


def test_what_a_population_changes_is_searched_and_shown() -> None:
    mutated = {
        "lr": "tune.loguniform(1e-5, 1e-3)",
        "loss": {"clip_low": [0.1, 0.2]},
        "learner": {"weight_decay": [0.0]},
    }
    read = experiment(
        config={"lr": 1.0e-4, "loss": {"type": "ppo_clip"}, "seed": {"grid_search": [0, 1]}},
        scheduler={"type": "pbt", "perturbation_interval": 2, "hyperparam_mutations": mutated},
    )
    assert read.num_trials == 2 and read.space["lr"] == 1.0e-4  # what is set stays the first value
    assert read.space["loss"]["type"] == "ppo_clip" and read.space["loss"]["clip_low"].categories == [0.1, 0.2]
    assert set(read.places) == {("seed",), ("loss", "clip_low"), ("learner", "weight_decay"), ("lr",)}
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"loss": {"clip_lwo": [0.1]}}, "Did you mean 'clip_low'"),
        ({"loss": {"clip_low": [0.1, -2.0]}}, r"loss\.clip_low"),
        ({"lr": 0.1}, r"scheduler\.hyperparam_mutations\.lr: expected a list of values, or a call"),
        ({"lr": "tune.uniform(0)"}, r"scheduler\.hyperparam_mutations\.lr: 'tune.uniform\(0\)'"),
    ]
    for wrong, message in mistakes:
        with pytest.raises(InputError, match=message):
            experiment(config={}, scheduler={"type": "pbt", "hyperparam_mutations": wrong})


def outcome(folder: Path, name: str, lr: float, seed: int, successes: list[float]) -> TrialOutcome:
    place = folder / name
    place.mkdir()
    for i, success in enumerate(successes, 1):
        evaluation = {"success_rate": success, "success_rate_low": success - 0.1, "success_rate_high": success + 0.1}
        append_history(place, {"training_iteration": i, "time_total_s": 2.0 * i, "evaluation": evaluation})
    return TrialOutcome(name, "finished", len(successes), {}, None, str(place), params=[[["lr"], lr], [["seed"], seed]])


def test_the_best_trial_becomes_a_file_that_runs(tmp_path: Path) -> None:
    config = {"lr": "tune.loguniform(1e-5, 1e-2)", "seed": {"grid_search": [0, 1]}, "evaluation_interval": 1}
    read = experiment(config=config, num_samples=2, scheduler="asha", stop={"training_iteration": 3})
    outcomes = [
        outcome(tmp_path, "a", 1e-3, 0, [0.9, 0.5]),  # 0.9 was once: the last value counts
        outcome(tmp_path, "b", 1e-3, 1, [0.6]),
        outcome(tmp_path, "c", 1e-4, 0, [0.2, 0.7]),
        outcome(tmp_path, "d", 1e-4, 1, [0.5]),
        outcome(tmp_path, "e", 1e-5, 0, []),
    ]
    sweep, places = write_sweep(read, outcomes, tmp_path / "sweep")
    assert [trial.name for trial in sweep.ranked] == ["c", "b", "a", "d"]
    assert [(s.params, round(s.mean, 3), s.low, s.high) for s in sweep.settings] == [
        ({"lr": 1e-4}, 0.6, 0.5, 0.7), ({"lr": 1e-3}, 0.55, 0.5, 0.6)
    ]  # fmt: skip
    assert sweep.best is not None and sweep.best.name in ("c", "d")
    assert (tmp_path / "sweep" / "sweep.png").stat().st_size > 5000 and "best trial, ready to run" in places
    rows = yaml.safe_load((tmp_path / "sweep" / "trials.json").read_text())
    assert rows[0] == {
        "trial": "c", "lr": 1e-4, "seed": 0, "evaluation/success_rate": 0.7, "low": pytest.approx(0.6),
        "high": pytest.approx(0.8), "iterations": 2, "seconds": 4.0, "status": "finished",
    }  # fmt: skip
    assert rows[-1]["trial"] == "e" and rows[-1]["evaluation/success_rate"] is None
    (best,) = read_experiments(read_experiment_file(str(tmp_path / "sweep" / "best.yaml")), "best.yaml")
    assert best.name == "sweep-best" and not best.is_sweep and best.config.lr == 1e-4
    assert best.settings.scheduler is None and best.settings.stop == {"training_iteration": 3}
    for table in (sweep.table(), sweep.settings_table()):
        assert table is not None and table.row_count in (2, 5)


def test_a_sweep_in_which_nothing_was_reported_still_has_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep, places = write_sweep(experiment(), [outcome(tmp_path, "a", 1e-3, 0, [])], tmp_path / "sweep")
    assert sweep.best is None and set(places) == {"table"} and sweep.table().row_count == 1
    nothing = [outcome(tmp_path, name, 1e-3, 0, []) for name in "bc"]
    report(experiment(storage_path=str(tmp_path)), nothing, TrainOptions())
    assert "no trial has reported env_runners/success_rate, so none is the best" in capsys.readouterr().out
