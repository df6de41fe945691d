"""History, learning curve and end table."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from matplotlib.image import imread
from rich.console import Console

from rllib_agentic.tracking.history import append_history, read_history
from rllib_agentic.tracking.plot import plot_learning_curve
from rllib_agentic.tracking.summary import Rate, summarize


def row(i: int, **more: float) -> dict[str, float]:
    return {"training_iteration": i, "time_total_s": 2.0 * i, "env_runners/success_rate": i / 40, **more}


def evaluation(section: str, rate: float, low: float, high: float) -> dict[str, float]:
    values = {"success_rate": rate, "success_rate_low": low, "success_rate_high": high, "num_episodes": 100}
    return {f"{section}/{name}": value for name, value in values.items()}


HISTORY = [
    row(1, **evaluation("evaluation_at_start", 0.2, 0.13, 0.29)),
    row(10, **evaluation("evaluation", 0.5, 0.4, 0.6)),
    row(40, **evaluation("evaluation", 0.95, 0.89, 0.98)),
    row(41, **evaluation("evaluation_at_start", 0.9, 0.8, 0.95)),  # a resumed run may evaluate at its start again
]


def text(table: object) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_end_table_shows_before_and_after_with_intervals_and_places() -> None:
    summary = summarize("maze_0", HISTORY, {"plot": "/r/[a].png", "MLflow run": "sqlite:///m.db run 1"})
    shown = text(summary.table())
    assert "success before  20.0 % [13.0, 29.0], 100 episodes" in shown
    assert "success after   95.0 % [89.0, 98.0], 100 episodes" in shown
    assert "change          +75.0 points, more than chance" in shown
    assert "41 iterations in 1m22s" in shown and "/r/[a].png" in shown
    assert summary.rose is True
    assert summary.as_dict()["before"] == {"rate": 0.2, "low": 0.13, "high": 0.29, "episodes": 100}


def test_overlapping_intervals_are_no_rise() -> None:
    history = [
        row(1, **evaluation("evaluation_at_start", 0.5, 0.4, 0.6)),
        row(2, **evaluation("evaluation", 0.6, 0.5, 0.7)),
    ]
    assert summarize("t", history, {}).rose is False
    assert "within the intervals" in text(summarize("t", history, {}).table())


def test_a_run_without_evaluation_says_so() -> None:
    summary = summarize("t", [row(3)], {})
    assert (summary.before, summary.after, summary.rose, summary.iterations) == (None, None, None, 3)
    assert text(summary.table()).count("not evaluated") == 2
    assert summarize("t", [], {}).iterations == 0
    assert str(Rate(0.5)) == "50.0 %"


def test_history_survives_resumes_and_cut_lines(tmp_path: Path) -> None:
    for i, value in [(1, 0.1), (2, 0.2), (3, 0.3), (2, 0.9)]:
        append_history(tmp_path, {"training_iteration": i, "env_runners": {"x": value, "nan": float("nan")}})
    with open(tmp_path / "history.jsonl", "a") as file:
        file.write('{"training_iter')
    assert read_history(tmp_path) == [
        {"training_iteration": 1.0, "env_runners/x": 0.1},
        {"training_iteration": 2.0, "env_runners/x": 0.9},
    ]
    assert read_history(tmp_path / "absent") == []


@pytest.mark.parametrize("history", [HISTORY, HISTORY[:1], [row(i) for i in range(1, 60)], [{}], []])
def test_the_learning_curve_is_drawn_from_whatever_there_is(tmp_path: Path, history: list[dict[str, float]]) -> None:
    file = plot_learning_curve(history, tmp_path / "deep" / "curve.png", title="maze")
    assert imread(file).shape == (840, 1500, 4)
    assert [p.name for p in file.parent.iterdir()] == ["curve.png"]
