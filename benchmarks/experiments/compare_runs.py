"""Compare finished experiments over their seeds: Markdown tables, and curves with the range over seeds.

    rllib train file tuned_examples/sweeps/interaction_budget.yaml
    python benchmarks/experiments/compare_runs.py runs/interaction-budget --plot docs/images/budgets.png

Each folder is an experiment that `rllib train` or `run_grid.py` has finished. Trials that differ in `seed` alone are
one setting. Held-out success is that of the last evaluation; what every iteration reports is the mean of the last five.
Intervals are 95 % ones of a mean over seeds (Student's t), so with few seeds they are wide.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import t as student

from rllib_agentic.cli.places import short_names
from rllib_agentic.cli.run_experiment import END_FILE
from rllib_agentic.tracking.history import read_history

SEED = "seed"
SUCCESS, AT_START = "evaluation/success_rate", "evaluation_at_start/success_rate"
TURNS = "env_runners/num_env_steps_sampled_lifetime"
LAST = 5  # iterations
COLUMNS = (
    ("training success", "env_runners/success_rate", "{:.0%}"),
    ("entropy", "learners/default_policy/entropy", "{:.2f}"),
    ("turns", "env_runners/num_turns_mean", "{:.1f}"),
    ("segments", "env_runners/segments_mean", "{:.1f}"),
    ("longest context", "env_runners/context_tokens_max", "{:.0f}"),
    ("turns played", TURNS, "{:.0f}"),
    ("CPU s", "cpu_seconds", "{:.0f}"),
)
TOTALS = (TURNS, "cpu_seconds")
TITLES = {
    SUCCESS: "held-out success",
    "env_runners/success_rate": "training success",
    "diagnostics/echo_trap/reward_spread": "spread of rewards within groups",
    "diagnostics/echo_trap/entropy": "entropy (nats a token)",
    "diagnostics/echo_trap/grad_norm": "gradient norm before clipping",
    "diagnostics/template_collapse/mutual_information": "mutual information (nats)",
    "curriculum/max_turns": "interaction budget (turns)",
}


class Run(NamedTuple):
    """One trial: its seed, its results in order, and the alarms and other events that `run_grid.py` noted."""

    seed: Any
    history: list[dict[str, float]]
    events: list[dict[str, Any]]

    def last(self, metric: str) -> float | None:
        """As it was reported last."""
        return next((row[metric] for row in reversed(self.history) if metric in row), None)

    def recent(self, metric: str) -> float | None:
        """Mean over the last iterations."""
        values = [row[metric] for row in self.history[-LAST:] if metric in row]
        return statistics.fmean(values) if values else None


Settings = Mapping[str, Sequence[Run]]


def read_settings(folders: Sequence[Path]) -> dict[str, list[Run]]:
    """Label of a setting to its runs, one a seed."""
    found: dict[str, list[Run]] = {}
    for folder in folders:
        for trial in json.loads((folder / END_FILE).read_text())["trials"]:
            places = [tuple(place) for place, _ in trial.get("params", [])]
            values = dict(zip(short_names(places), [value for _, value in trial.get("params", [])], strict=True))
            varied = ", ".join(_text(value) for name, value in values.items() if name != SEED)
            place = Path(trial["folder"])
            events = place / "events.jsonl"
            lines = events.read_text().splitlines() if events.is_file() else []
            run = Run(values.get(SEED, 0), read_history(place), [json.loads(line) for line in lines])
            found.setdefault(varied or folder.name, []).append(run)
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of values that are drawn independently from a normal distribution."""
    half = student.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values) - half, statistics.fmean(values) + half


def table(settings: Settings) -> str:
    """A line a setting: held-out success over seeds, and what else was reported."""
    everything = {name for runs in settings.values() for run in runs for row in run.history for name in row}
    columns = [column for column in COLUMNS if column[1] in everything]
    heads = ["setting", "held-out before", "after", "95 % interval", "each seed", *(name for name, _, _ in columns)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for label, runs in settings.items():
        after = [value for run in runs if (value := run.last(SUCCESS)) is not None]
        cells = [label, _mean([run.last(AT_START) for run in runs], "{:.0%}"), _mean(after, "{:.0%}")]
        if len(after) > 1:
            low, high = interval(after)
            cells += [f"[{max(low, 0):.0%}, {min(high, 1):.0%}]", ", ".join(f"{100 * value:.0f}" for value in after)]
        else:
            cells += ["-", "-"]
        for _, metric, form in columns:
            cells.append(_mean([run.last(metric) if metric in TOTALS else run.recent(metric) for run in runs], form))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def differences(settings: Settings) -> str:
    """Held-out success of every setting minus that of the first one, seed by seed."""
    (first, base), *others = settings.items()
    lines = [f"| held-out success minus that of {first} | mean | 95 % interval | each seed |", "|---|---|---|---|"]
    reached = {run.seed: run.last(SUCCESS) for run in base}
    for label, runs in others:
        after = {run.seed: run.last(SUCCESS) for run in runs}
        shared = [seed for seed in after if reached.get(seed) is not None and after[seed] is not None]
        changes = [100 * (after[seed] - reached[seed]) for seed in shared]  # type: ignore[operator]
        if len(changes) > 1:
            low, high = interval(changes)
            each = ", ".join(f"{change:+.0f}" for change in changes)
            lines.append(f"| {label} | {statistics.fmean(changes):+.0f} | [{low:+.0f}, {high:+.0f}] | {each} |")
    return "\n".join(lines)


def alarms(settings: Settings) -> str:
    """Which alarms rang in which iteration, by seed; empty where no run had an event."""
    lines = ["| setting | seed | iteration | what |", "|---|---|---|---|"]
    for label, runs in settings.items():
        for run in runs:
            told = [(event["iteration"], event["message"]) for event in run.events] or [("-", "no event")]
            lines += [f"| {label} | {run.seed} | {iteration} | {message} |" for iteration, message in told]
    return "\n".join(lines) if any(run.events for runs in settings.values() for run in runs) else ""


def plot(settings: Settings, metrics: Sequence[str], over: str, path: Path) -> None:
    """A panel a metric, a colour a setting: the mean over seeds, the range in a lighter shade, alarms as triangles.

    Over turns, a point stands at the mean over seeds of the turns that were played until then.
    """
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    across = math.ceil(math.sqrt(len(metrics)))
    down = math.ceil(len(metrics) / across)
    figure = Figure(figsize=(4.6 * across, 3.3 * down), dpi=100, layout="constrained", facecolor="white")
    canvas = FigureCanvasAgg(figure)
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    colours = ("#0f766e", "#b45309", "#4338ca", "#be123c", "#334155", "#65a30d")
    for axis, metric in zip(axes, metrics, strict=False):
        for (label, runs), colour in zip(settings.items(), colours * 3, strict=False):
            points = [_points(run, metric, over) for run in runs]
            shared = sorted(set.intersection(*(set(found) for found in points)))
            if not shared:
                continue
            at = [statistics.fmean(found[x][0] for found in points) for x in shared]
            values = [[found[x][1] for found in points] for x in shared]
            low, high = [min(v) for v in values], [max(v) for v in values]
            axis.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
            axis.plot(at, [statistics.fmean(v) for v in values], color=colour, linewidth=1.8, label=label)
            rang = [e["iteration"] for run in runs for e in run.events if e["kind"] != "curriculum"]
            if rang and over == "iterations":
                axis.plot(rang, [1.0] * len(rang), "v", color=colour, transform=axis.get_xaxis_transform(),
                          clip_on=False, markersize=6, alpha=0.8)  # fmt: skip
        axis.set_title(TITLES.get(metric, metric), fontsize=9, loc="left", pad=9)
        axis.set_xlabel("Turns played" if over == "turns" else "Iteration", fontsize=9)
        axis.grid(color="#e5e7eb", linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.set_ylim(bottom=0)
    for axis in axes[len(metrics) :]:
        axis.set_visible(False)
    figure.axes[0].legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.draw()
    Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").quantize(64).save(path, optimize=True)


def _points(run: Run, metric: str, over: str) -> dict[float, tuple[float, float]]:
    """Iteration to place on the axis and value; an evaluation before training stands at 0."""
    found = {
        row["training_iteration"]: (row[TURNS] if over == "turns" else row["training_iteration"], row[metric])
        for row in run.history
        if metric in row
    }
    before = run.last(AT_START)
    return {0: (0, before), **found} if metric == SUCCESS and before is not None else found


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return form.format(statistics.fmean(known)) if known else "-"


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
    parser.add_argument("--over", choices=("iterations", "turns"), default="iterations", help="the horizontal axis")
    given = parser.parse_args()
    settings = read_settings(given.folders)
    parts = [table(settings), differences(settings) if len(settings) > 1 else "", alarms(settings)]
    print("\n\n".join(part for part in parts if part))
    if given.plot is not None:
        plot(settings, given.metric or [SUCCESS], given.over, given.plot)


if __name__ == "__main__":
    main()
