"""The progress view: lines without a terminal, a live view with one, time left, warnings."""

from __future__ import annotations

import io
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from rllib_agentic.tracking.progress import ProgressCallback
from rllib_agentic.tracking.progress_rows import TrialRow, sparkline
from rllib_agentic.tracking.time_left import format_duration, time_left_s


class Trial(SimpleNamespace):
    def __str__(self) -> str:
        return str(self.name)


def run(callback: ProgressCallback, results: list[dict[str, Any]], stop: Any = None, name: str = "maze_0") -> None:
    trial = Trial(trial_id=name, name=name, config={}, error_file="/x/error.txt")
    callback.setup(stop=stop)
    callback.on_trial_start(0, [trial], trial)
    for result in results:
        callback.on_trial_result(0, [trial], trial, result)
    callback.on_trial_complete(0, [trial], trial)
    callback.on_experiment_end([trial])


def result(i: int, **more: Any) -> dict[str, Any]:
    return {
        "training_iteration": i,
        "time_total_s": 10.0 * i,
        "env_runners": {"success_rate": i / 4, "episode_return_mean": -0.5, "tokens_per_s": 1234.4},
        "learners": {"default_policy": {"entropy": 1.25, "trained_tokens": 7}},
        **more,
    }


def test_without_a_terminal_each_iteration_is_one_plain_line() -> None:
    out = io.StringIO()
    run(
        ProgressCallback(out),
        [result(1), result(2, evaluation={"success_rate": 0.5}), result(3)],
        {"training_iteration": 30},
    )
    lines = out.getvalue().splitlines()
    assert lines == [
        "maze_0  iteration 1/30  success 25.0%  return -0.5  entropy 1.25  tok/s 1,234  left 4m50s",
        "maze_0  iteration 2/30  success 50.0%  held-out 50.0%  return -0.5  entropy 1.25  tok/s 1,234  left 4m40s",
        "maze_0  iteration 3/30  success 75.0%  held-out 50.0%  return -0.5  entropy 1.25  tok/s 1,234  left 4m30s",
    ]


def test_results_without_the_known_metrics_still_make_a_line() -> None:
    out = io.StringIO()
    run(ProgressCallback(out), [{"training_iteration": 1}, {}])
    assert out.getvalue().splitlines() == ["maze_0  iteration 1", "maze_0  iteration 2"]


def test_ux04_an_iteration_that_trained_nothing_warns() -> None:
    out = io.StringIO()
    nothing = {"default_policy": {"trained_tokens": 0.0, "policy_loss": 0.0}}
    run(ProgressCallback(out), [result(1), result(2, learners=nothing)])
    warnings = [line for line in out.getvalue().splitlines() if "warning" in line]
    assert len(warnings) == 1 and "nothing was trained" in warnings[0]


def test_a_failed_trial_says_where_its_traceback_is() -> None:
    out = io.StringIO()
    callback = ProgressCallback(out)
    trial = Trial(trial_id="t", name="[maze]", error_file="/x/error.txt")
    callback.on_trial_error(0, [trial], trial)
    assert out.getvalue() == "[maze]: failed; the traceback is in /x/error.txt\n"


def test_a_terminal_gets_a_live_table_that_stays_at_the_end() -> None:
    out = io.StringIO()
    run(ProgressCallback(out, live=True), [result(1), result(2)], {"training_iteration": 4})
    shown = out.getvalue()
    assert "maze_0" in shown and "2/4" in shown and "▃▅" in shown and "done" in shown and "50.0%" in shown


def test_several_trials_are_told_apart_by_the_end_of_their_names() -> None:
    out = io.StringIO()
    callback = ProgressCallback(out, live=True)
    for name in (
        "GRPO_a_very_long_name_of_an_environment_0001",
        "GRPO_a_very_long_name_of_an_environment_0002",
    ):
        trial = Trial(trial_id=name, name=name)
        callback.on_trial_result(0, [trial], trial, result(1))
    callback.on_experiment_end([])
    assert "0001" in out.getvalue() and "0002" in out.getvalue() and "GRPO" not in out.getvalue()


def test_streams_are_told_by_name_so_that_tune_can_store_the_callback(capsys: pytest.CaptureFixture[str]) -> None:
    run(pickle.loads(pickle.dumps(ProgressCallback("stderr"))), [result(1)])
    captured = capsys.readouterr()
    assert captured.out == "" and "iteration 1" in captured.err
    run(ProgressCallback(), [result(1)])
    assert "iteration 1" in capsys.readouterr().out


def test_time_left_follows_recent_speed_and_the_nearest_criterion() -> None:
    # 10 slow iterations of 100 s, then 10 of 1 s: the last ten count.
    rows = [{"training_iteration": i, "time_total_s": 100.0 * min(i, 10) + max(i - 10, 0)} for i in range(1, 21)]
    assert time_left_s(rows, {"training_iteration": 50}) == pytest.approx(30.0)
    assert time_left_s(rows, {"training_iteration": 50, "time_total_s": 1020.0}) == pytest.approx(10.0)
    assert time_left_s(rows, {"evaluation/success_rate": 0.9}) is None
    assert time_left_s([], {"training_iteration": 5}) is None
    assert time_left_s(rows, {"training_iteration": 5}) == 0.0


def test_a_run_without_time_in_its_results_has_no_estimate() -> None:
    assert time_left_s([{"training_iteration": 1}], {"training_iteration": 5}) is None
    assert TrialRow("t", {"training_iteration": 5}, [{"training_iteration": 1.0}], "running").left == ""


def test_durations_round_before_they_split() -> None:
    assert [format_duration(s) for s in (0, 59.6, 3599.7, 90000)] == ["0s", "1m00s", "1h00m", "25h00m"]


def test_sparkline_averages_what_does_not_fit() -> None:
    assert sparkline([]) == ""
    assert sparkline([0.0, 1.0] * 24, width=24) == sparkline([0.5] * 24)
    assert sparkline([-1.0, 2.0]) == "▁█"
    assert len(sparkline([0.5] * 1000)) == 24


def test_events_are_lines_of_their_own() -> None:
    out = io.StringIO()
    stage = {
        "kind": "curriculum",
        "iteration": 2,
        "message": "the interaction budget grows from 10 to 20 turns (stage 1)",
    }
    run(ProgressCallback(out), [result(1), result(2, events=[stage])])
    lines = out.getvalue().splitlines()
    assert lines[2] == "maze_0: iteration 2: the interaction budget grows from 10 to 20 turns (stage 1)"
    assert len(lines) == 3
