"""When a run stops, and what it says where it never would."""

from typing import Any

from ray.tune.experiment import Trial

from rllib_agentic.cli.interrupt import InterruptStopper
from rllib_agentic.cli.outcome import TrialOutcome, judge
from rllib_agentic.cli.report import _stored_outcome
from rllib_agentic.cli.run_experiment import _latest


def result(**changes: Any) -> dict[str, Any]:
    return {"training_iteration": 1, "env_runners": {"success_rate": 0.5}, **changes}


def test_any_criterion_stops_and_an_interrupt_stops_at_the_next_result() -> None:
    stopper = InterruptStopper({"training_iteration": 3, "env_runners/success_rate": 0.9})
    assert not stopper("t", result())
    assert stopper("t", result(env_runners={"success_rate": 0.9})) and stopper.reasons == {"t": "criteria"}
    stopper = InterruptStopper({"training_iteration": 3})
    stopper.interrupted = True
    assert stopper("t", result()) and stopper.reasons == {"t": "interrupt"}


def test_a_criterion_that_no_result_holds_is_named_once_with_the_nearest(capsys: Any) -> None:
    stopper = InterruptStopper({"env_runners/succes_rate": 0.9, "evaluation/success": 0.9, "training_iteration": 9})
    for _ in range(2):
        assert not stopper("t", result())
    said = capsys.readouterr().err
    assert said.count("env_runners/succes_rate") == 1 and "Did you mean 'env_runners/success_rate'?" in said
    assert "evaluation/" not in said  # there was no evaluation yet
    for _ in range(2):
        stopper("t", result(evaluation={"success_rate": 0.1}))
    said = capsys.readouterr().err
    assert said.count("stop.evaluation/success:") == 1 and "'evaluation/success_rate'" in said


def test_a_finished_run_is_judged_again_by_what_its_criteria_had_seen() -> None:
    ended = TrialOutcome(
        name="t",
        status="finished",
        iterations=4,
        metrics={"env_runners/success_rate": 0.5},  # the last iteration evaluated nothing
        checkpoint=None,
        folder="t",
        pass_criteria=judge({"evaluation/success_rate": 0.8}, {"evaluation/success_rate": 0.9}),
    )
    stored = ended.as_json() | {"folder": ended.folder}
    again = _stored_outcome(stored, {"evaluation/success_rate": 0.8, "env_runners/success_rate": 0.6})
    assert [c.got for c in again.pass_criteria.values()] == [0.9, 0.5]
    assert [c.met for c in again.pass_criteria.values()] == [True, False]
    assert _stored_outcome(stored, {"evaluation/success_rate": 0.8}) == ended


def test_the_latest_value_of_a_criterion_counts_where_the_last_result_has_none() -> None:
    trial = Trial("GRPO", stub=True)
    trial.update_last_result({"training_iteration": 3, "evaluation": {"success_rate": 0.7}})
    trial.update_last_result({"training_iteration": 4})
    names = ["evaluation/success_rate", "evaluation/nothing"]
    assert _latest(trial, names) == {"evaluation/success_rate": 0.7}
