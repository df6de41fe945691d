"""When a run stops, and what it says where it never would."""

from typing import Any

from rllib_agentic.cli.interrupt import InterruptStopper


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
