"""The learning curve of a run as a picture."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TRAIN, _HELD_OUT, _OTHER = "#7c8aa5", "#0f766e", "#334155"
_PANELS = (
    # title, metric
    ("Return per episode", "env_runners/episode_return_mean"),
    ("Policy entropy (nats per token)", "learners/default_policy/entropy"),
    ("Sampled tokens per second", "env_runners/tokens_per_s"),
)


def plot_learning_curve(history: Sequence[Mapping[str, float]], path: Path, *, title: str = "") -> Path:
    """Draw success (training, and held-out with its 95 % interval), return, entropy and speed over iterations.

    Needs no display and no global state, so that it may run in any thread. The file appears whole or not at all.

    Args:
        history: results, flat, in order (see :func:`~.history.read_history`); what they lack is left blank.
        path: where the PNG goes.
        title: above the panels.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(10, 5.6), dpi=150, layout="constrained", facecolor="white")
    canvas = FigureCanvasAgg(figure)
    axes: dict[str, Axes] = figure.subplot_mosaic(
        [["success", "return"], ["success", "entropy"], ["success", "speed"]], width_ratios=[1.7, 1]
    )
    _draw_success(axes["success"], history)
    for axis, (panel_title, metric) in zip((axes["return"], axes["entropy"], axes["speed"]), _PANELS, strict=True):
        _draw_line(axis, history, metric, panel_title)
    for axis in axes.values():
        axis.grid(color="#e5e7eb", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8, color="#9ca3af")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes["speed"].set_ylim(bottom=0)
    for name in ("success", "speed"):
        axes[name].set_xlabel("Iteration", fontsize=9)
    if title:
        figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    canvas.print_png(str(aside))
    os.replace(aside, path)
    return path


def _draw_success(axis: Axes, history: Sequence[Mapping[str, float]]) -> None:
    axis.set_title("Success rate", fontsize=10, loc="left")
    x, y = _points(history, "env_runners/success_rate")
    smooth = len(x) > 8
    axis.plot(x, y, color=_TRAIN, alpha=0.4 if smooth else 1, linewidth=1, label=None if smooth else "training tasks")
    if smooth:
        axis.plot(x, _smooth(y), color=_TRAIN, linewidth=2, label="training tasks (smoothed)")
    points = _held_out(history)
    if points:
        at, rate, low, high = zip(*points, strict=True)
        axis.vlines(at, low, high, color=_HELD_OUT, alpha=0.4, linewidth=1.2)
        axis.fill_between(at, low, high, color=_HELD_OUT, alpha=0.15, linewidth=0, label="95 % interval")
        axis.plot(at, rate, color=_HELD_OUT, linewidth=2, marker="o", markersize=4.5, label="held-out tasks")
        for x_end, y_end in {(at[0], rate[0]), (at[-1], rate[-1])}:
            axis.annotate(
                f"{y_end:.0%}",
                (x_end, y_end),
                textcoords="offset points",
                xytext=(6, -16 if y_end > 0.5 else 10),
                fontsize=9,
                color=_HELD_OUT,
                fontweight="bold",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
            )
    axis.set_ylim(-0.02, 1.02)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    if x or points:
        axis.legend(fontsize=8, frameon=False, loc="best")


def _draw_line(axis: Axes, history: Sequence[Mapping[str, float]], metric: str, title: str) -> None:
    axis.set_title(title, fontsize=9, loc="left")
    x, y = _points(history, metric)
    if not x:
        axis.text(0.5, 0.5, "not reported", transform=axis.transAxes, ha="center", fontsize=8, color="#9ca3af")
        return
    axis.plot(x, y, color=_OTHER, linewidth=1.4, marker="o" if len(x) == 1 else None)


def _points(history: Sequence[Mapping[str, float]], metric: str) -> tuple[list[float], list[float]]:
    found = [(_iteration(row, i), row[metric]) for i, row in enumerate(history) if metric in row]
    return [x for x, _ in found], [y for _, y in found]


def _held_out(history: Sequence[Mapping[str, float]]) -> list[tuple[float, float, float, float]]:
    """Iteration, rate, low, high of each evaluation; the one before training stands at iteration 0."""
    points: list[tuple[float, float, float, float]] = []
    for i, row in enumerate(history):
        for section, at in (("evaluation_at_start", 0.0), ("evaluation", _iteration(row, i))):
            rate = row.get(f"{section}/success_rate")
            if rate is not None and not (section == "evaluation_at_start" and points):
                low = min(row.get(f"{section}/success_rate_low", rate), rate)
                high = max(row.get(f"{section}/success_rate_high", rate), rate)
                points.append((at, rate, low, high))
    return points


def _iteration(row: Mapping[str, float], position: int) -> float:
    return row.get("training_iteration", position + 1)


def _smooth(values: list[float]) -> list[float]:
    """A centred mean over about a tenth of the run."""
    half = max(len(values) // 20, 1)
    windows = [values[max(i - half, 0) : i + half + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]
