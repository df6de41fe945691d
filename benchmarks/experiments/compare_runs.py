"""Compare finished experiments over their seeds: a Markdown table, and curves with the range over seeds.

    rllib train file tuned_examples/context_append_only.yaml    # and its siblings
    python benchmarks/experiments/compare_runs.py runs/context-* --plot docs/images/context.png

Each folder is an experiment that `rllib train` has finished. Trials that differ in `seed` alone are one line.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rllib_agentic.cli.places import short_names
from rllib_agentic.cli.run_experiment import END_FILE
from rllib_agentic.tracking.history import read_history

SEED = "seed"
COLUMNS = (
    ("held-out success", "evaluation/success_rate", "{:.0%}"),
    ("training success", "env_runners/success_rate", "{:.0%}"),
    ("entropy", "learners/default_policy/entropy", "{:.2f}"),
    ("turns", "env_runners/num_turns_mean", "{:.1f}"),
    ("segments", "env_runners/segments_mean", "{:.1f}"),
    ("longest context", "env_runners/context_tokens_max", "{:.0f}"),
)

Histories = list[list[dict[str, float]]]


def read_settings(folders: Sequence[Path]) -> dict[str, Histories]:
    """Label of a setting to the histories of its seeds."""
    found: dict[str, Histories] = {}
    for folder in folders:
        for trial in json.loads((folder / END_FILE).read_text())["trials"]:
            places = [tuple(place) for place, _ in trial.get("params", [])]
            values = dict(zip(short_names(places), [value for _, value in trial.get("params", [])], strict=True))
            varied = ", ".join(_text(value) for name, value in values.items() if name != SEED)
            label = varied or folder.name
            found.setdefault(label, []).append(read_history(Path(trial["folder"])))
    return found


def table(settings: Mapping[str, Histories], columns: Sequence[tuple[str, str, str]]) -> str:
    """Mean over seeds of the last report, and its range."""
    columns = [c for c in columns if any(c[1] in row for runs in settings.values() for run in runs for row in run)]
    lines = ["| setting | seeds | " + " | ".join(name for name, _, _ in columns) + " | seconds |"]
    lines.append("|" + "---|" * (len(columns) + 3))
    for label, runs in settings.items():
        cells = []
        for _, metric, form in columns:
            last = [next((row[metric] for row in reversed(run) if metric in row), None) for run in runs]
            values = [value for value in last if value is not None]
            cells.append(_range(values, form))
        cells.append(_range([run[-1]["time_total_s"] for run in runs], "{:.0f}"))
        lines.append(f"| {label} | {len(runs)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(settings: Mapping[str, Histories], metrics: Sequence[str], path: Path) -> None:
    """A panel a metric, a colour a setting: the mean over seeds, and the range in a lighter shade."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(metrics), 3.8), dpi=130, layout="constrained", facecolor="white")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(metrics), squeeze=False)[0]
    colours = ("#0f766e", "#b45309", "#4338ca", "#be123c", "#334155", "#65a30d")
    for axis, metric in zip(axes, metrics, strict=True):
        for (label, runs), colour in zip(settings.items(), colours * 3, strict=False):
            points: dict[float, list[float]] = {}
            for run in runs:
                start = next((row[f"evaluation_at_start/{metric.rpartition('/')[2]}"] for row in run
                              if metric.startswith("evaluation/")
                              and f"evaluation_at_start/{metric.rpartition('/')[2]}" in row), None)  # fmt: skip
                if start is not None:
                    points.setdefault(0, []).append(start)
                for row in run:
                    if metric in row:
                        points.setdefault(row["training_iteration"], []).append(row[metric])
            at = sorted(points)
            if not at:
                continue
            axis.fill_between(
                at, [min(points[x]) for x in at], [max(points[x]) for x in at], color=colour, alpha=0.12, linewidth=0
            )
            axis.plot(at, [statistics.fmean(points[x]) for x in at], color=colour, linewidth=1.8, label=label)
        axis.set_title(metric.removeprefix("learners/default_policy/"), fontsize=9, loc="left")
        axis.set_xlabel("Iteration", fontsize=9)
        axis.grid(color="#e5e7eb", linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    axes[0].legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.print_png(str(path))


def _range(values: Sequence[float], form: str) -> str:
    if not values:
        return "-"
    mean = form.format(statistics.fmean(values))
    low, high = form.format(min(values)), form.format(max(values))
    return mean if len(values) == 1 else f"{mean} ({low} to {high})"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(_text(part) for part in value.values())
    if isinstance(value, list):
        return "none" if not value else "+".join(_text(part) for part in value)
    return str(value)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--metric", action="append", help="metrics to draw (default: held-out success)")
    given = parser.parse_args()
    settings = read_settings(given.folders)
    print(table(settings, COLUMNS))
    if given.plot is not None:
        plot(settings, given.metric or ["evaluation/success_rate"], given.plot)


if __name__ == "__main__":
    main()
