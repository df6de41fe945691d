"""A sweep as a picture: the curves of its trials, and the metric against everything that was varied."""

from __future__ import annotations

import os
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from rllib_agentic.tracking.sweep import SEED, Sweep, SweepTrial, _text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_PANELS = 4
_ACCENT = "#0f766e"


def plot_sweep(sweep: Sweep, path: Path) -> Path:
    """Draw the metric over iterations, a line a trial, and beside it the last value against each varied setting.

    Error bars are the 95 % intervals that the trials reported. The best trial is drawn in colour. The file appears
    whole or not at all.

    Args:
        sweep: with at least one trial that reported the metric.
        path: where the PNG goes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = [name for name in dict.fromkeys(n for t in sweep.trials for n in t.params) if name != SEED]
    panels = names[:_MOST_PANELS] or [SEED]
    figure = Figure(figsize=(5.5 + 3.2 * len(panels), 4.2), dpi=150, layout="constrained", facecolor="white")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(1, 1 + len(panels), width_ratios=[1.7] + [1] * len(panels), squeeze=False)[0]
    _draw_curves(axes[0], sweep)
    for axis, name in zip(axes[1:], panels, strict=True):
        _draw_setting(axis, sweep, name)
        axis.sharey(axes[0])
    for axis in axes:
        axis.grid(color="#e5e7eb", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8, color="#9ca3af")
    figure.suptitle(sweep.name, fontsize=12, fontweight="bold", x=0.01, ha="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    canvas.print_png(str(aside))
    os.replace(aside, path)
    return path


def _draw_curves(axis: Axes, sweep: Sweep) -> None:
    axis.set_title(sweep.metric, fontsize=10, loc="left")
    axis.set_xlabel("Iteration", fontsize=9)
    for trial in sweep.trials:
        points = [(row.get("training_iteration", i + 1), row[sweep.metric])
                  for i, row in enumerate(trial.history) if sweep.metric in row]  # fmt: skip
        if points:
            x, y = zip(*points, strict=True)
            best = trial is sweep.best
            label = ", ".join(f"{name} {_text(value)}" for name, value in trial.params.items()) if best else None
            axis.plot(
                x, y, color=_ACCENT if best else "#94a3b8", linewidth=2.2 if best else 1, alpha=1 if best else 0.7,
                marker="o" if len(x) == 1 else None, zorder=3 if best else 2, label=label,
            )  # fmt: skip
    if sweep.best is not None:
        axis.legend(fontsize=8, frameon=False, loc="best", title="best", title_fontsize=8)


def _draw_setting(axis: Axes, sweep: Sweep, name: str) -> None:
    axis.set_title(name, fontsize=9, loc="left")
    trials = [trial for trial in sweep.ranked if name in trial.params]
    values = [trial.params[name] for trial in trials]
    numeric = all(isinstance(value, Real) and not isinstance(value, bool) for value in values)
    labels = sorted({_text(value) for value in values})
    at = [float(v) if numeric else float(labels.index(_text(v))) for v in values]
    if numeric and _wide(at):
        axis.set_xscale("log")
    if not numeric:
        wrapped = [fill(label.strip("[]") or label, 24) for label in labels]
        axis.set_xticks(range(len(labels)), wrapped, fontsize=8)
        if max(map(len, labels)) * len(labels) > 40:
            axis.tick_params(axis="x", labelrotation=90)
        axis.set_xlim(-0.5, len(labels) - 0.5)
    for trial, x in zip(trials, at, strict=True):
        _draw_trial(axis, trial, sweep, x)


def _draw_trial(axis: Axes, trial: SweepTrial, sweep: Sweep, x: float) -> None:
    value: Any = trial.last(sweep.metric)
    low, high = trial.interval(sweep.metric) or (value, value)
    best = trial is sweep.best
    axis.errorbar(
        [x], [value], yerr=[[max(value - low, 0)], [max(high - value, 0)]], fmt="o", markersize=5 if best else 4,
        color=_ACCENT if best else "#64748b", elinewidth=1, capsize=2, alpha=1 if best else 0.7,
    )  # fmt: skip


def _wide(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) > 20
