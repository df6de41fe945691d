"""Metrics of a batch, worked by hand."""

from dataclasses import replace

import numpy as np
import pytest

from rllib_agentic.algorithms.episode_metrics import episode_metrics
from rllib_agentic.trajectory import FinishReason, Task, Trajectory, Turn


def turn(**metrics: float) -> Turn:
    one = np.ones(1, np.int32)
    return Turn(one, one, np.zeros(1, np.float32), one, FinishReason.STOP, 0, "", metrics=metrics)


def episode(*turns: Turn) -> Trajectory:
    return Trajectory(
        Task("e", "train", 0), "g", 0, (), turns, True, False, success=False, end_reason="terminated", invalid=None
    )


def test_what_environments_report_is_summed_over_turns_and_averaged_over_episodes() -> None:
    first = episode(turn(tool_ok=2.0, tool_parse_error=1.0), turn(tool_error=1.0), turn(tool_timeout=1.0, depth=3.0))
    second = episode(turn(tool_ok=4.0))
    metrics = episode_metrics([first, second])
    assert metrics["env/tool_ok"] == 3.0 and metrics["env/depth"] == 1.5
    assert metrics["tool_error_rate"] == pytest.approx(2 / 8)
    assert metrics["tool_parse_error_rate"] == pytest.approx(1 / 4)


def test_rates_are_there_without_any_call() -> None:
    metrics = episode_metrics([episode(turn())])
    assert metrics["tool_error_rate"] == 0.0 and metrics["tool_parse_error_rate"] == 0.0


def test_the_share_of_code_that_runs_counts_runs_not_episodes() -> None:
    first = episode(turn(code_runs=1.0, code_ok=0.0), turn(code_runs=3.0, code_ok=3.0))
    second = episode(turn(code_runs=1.0, code_ok=1.0))
    assert episode_metrics([first, second])["code_success_rate"] == pytest.approx(4 / 5)
    assert "code_success_rate" not in episode_metrics([episode(turn())])


def test_the_share_of_code_that_runs_among_right_and_among_wrong_answers() -> None:
    right = episode(turn(code_runs=2.0, code_ok=1.0), turn(right_code_runs=2.0, right_code_ok=1.0))
    wrong = episode(turn(code_runs=1.0), turn(wrong_code_runs=1.0, wrong_code_ok=0.0))
    unanswered = episode(turn(code_runs=1.0, code_ok=1.0))
    metrics = episode_metrics([right, right, wrong, unanswered])
    assert metrics["code_success_rate"] == pytest.approx(3 / 6)
    assert (metrics["right_code_success_rate"], metrics["wrong_code_success_rate"]) == (0.5, 0.0)
    assert "wrong_code_success_rate" not in episode_metrics([right])


def test_success_by_category_where_there_are_several() -> None:
    easy, hard = ({"category": name} for name in ("easy", "hard"))
    played = [
        replace(episode(turn()), metrics=easy, success=True),
        replace(episode(turn()), metrics=hard, success=True),
        replace(episode(turn()), metrics=hard),
        replace(episode(turn()), metrics=hard, invalid="env_error"),
        episode(turn()),
    ]
    metrics = episode_metrics(played)
    assert metrics["category/easy"] == 1.0 and metrics["category/hard"] == 0.5
    assert not any(name.startswith("category/") for name in episode_metrics(played[1:3]))
