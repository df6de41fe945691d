"""The trials of a sweep side by side: what was varied, what came of it, and which one was best."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

SEED = "seed"


@dataclass(frozen=True, slots=True)
class SweepTrial:
    """One trial.

    Attributes:
        name: the trial's.
        params: what the search filled in, by short name.
        history: its results, flat (see :func:`~.history.read_history`).
        status: how it ended.
        folder: where its files are.
    """

    name: str
    params: Mapping[str, Any]
    history: Sequence[Mapping[str, float]]
    status: str = "finished"
    folder: str = ""

    @property
    def iterations(self) -> int:
        """How many it trained."""
        return int(self.history[-1].get("training_iteration", len(self.history))) if self.history else 0

    def last(self, metric: str) -> float | None:
        """The metric as it was reported last; None where it never was."""
        return next((row[metric] for row in reversed(self.history) if metric in row), None)

    def interval(self, metric: str) -> tuple[float, float] | None:
        """The 95 % interval that was reported with it, where there is one."""
        low, high = self.last(f"{metric}_low"), self.last(f"{metric}_high")
        return None if low is None or high is None else (low, high)


@dataclass(frozen=True, slots=True)
class Setting:
    """Trials that differ in their seed alone. ``mean``, ``low`` and ``high`` are over seeds."""

    params: Mapping[str, Any]
    trials: tuple[SweepTrial, ...]
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """All trials of an experiment, compared by one metric.

    The value of a trial is the metric's last report, not its best: the best of many evaluations is partly luck.

    Attributes:
        name: of the experiment.
        trials: in the order of the experiment.
        metric: what is compared.
        mode: ``max`` or ``min``.
    """

    name: str
    trials: tuple[SweepTrial, ...]
    metric: str
    mode: str = "max"

    @property
    def ranked(self) -> list[SweepTrial]:
        """The trials that reported the metric, best first; of equals the one that trained longer."""
        sign = -1.0 if self.mode == "max" else 1.0
        reported = [(trial, value) for trial in self.trials if (value := trial.last(self.metric)) is not None]
        reported.sort(key=lambda pair: (sign * pair[1], -pair[0].iterations, pair[0].name))
        return [trial for trial, _ in reported]

    @property
    def settings(self) -> list[Setting]:
        """The trials by everything but their seed, best mean first."""
        groups: dict[str, list[SweepTrial]] = {}
        for trial in self.ranked:
            groups.setdefault(repr(_without_seed(trial.params)), []).append(trial)
        found = []
        for trials in groups.values():
            values = [trial.last(self.metric) or 0.0 for trial in trials]
            mean = statistics.fmean(values)
            found.append(Setting(_without_seed(trials[0].params), tuple(trials), mean, min(values), max(values)))
        return sorted(found, key=lambda setting: -setting.mean if self.mode == "max" else setting.mean)

    @property
    def best(self) -> SweepTrial | None:
        """Of the setting with the best mean over seeds, the trial nearest to that mean; None where none reported."""
        if not self.settings:
            return None
        setting = self.settings[0]
        return min(setting.trials, key=lambda trial: abs((trial.last(self.metric) or 0.0) - setting.mean))

    def rows(self) -> list[dict[str, Any]]:
        """The table, JSON-able: best trial first, and last those that never reported the metric."""
        ranked = self.ranked
        rows = []
        for trial in [*ranked, *(t for t in self.trials if t not in ranked)]:
            interval = trial.interval(self.metric)
            rows.append(
                {
                    "trial": trial.name,
                    **trial.params,
                    self.metric: trial.last(self.metric),
                    "low": interval[0] if interval else None,
                    "high": interval[1] if interval else None,
                    "iterations": trial.iterations,
                    "seconds": trial.history[-1].get("time_total_s") if trial.history else None,
                    "status": trial.status,
                }
            )
        return rows

    def table(self) -> Table:
        """The trials for people, best first, with intervals."""
        names = list(dict.fromkeys(name for trial in self.trials for name in trial.params))
        table = Table(title=Text(self.name), title_justify="left", title_style="bold", box=None, header_style="dim")
        for heading in (*names, self.metric, "95 % interval", "iterations", "", "trial"):
            table.add_column(heading, overflow="fold")
        for row in self.rows():
            value, low, high = row[self.metric], row["low"], row["high"]
            table.add_row(
                *(Text(_text(row.get(name))) for name in names),
                "" if value is None else f"{value:.4g}",
                "" if low is None else f"{low:.3g} to {high:.3g}",
                str(row["iterations"]),
                row["status"],
                Text(row["trial"]),
                style="bold" if self.best is not None and row["trial"] == self.best.name else "",
            )
        return table

    def settings_table(self) -> Table | None:
        """The settings for people, over their seeds; None where no setting has several."""
        if all(len(setting.trials) < 2 for setting in self.settings):
            return None
        names = list(dict.fromkeys(name for setting in self.settings for name in setting.params))
        table = Table(title=Text("Over seeds"), title_justify="left", box=None, header_style="dim")
        for heading in (*names, "seeds", f"mean {self.metric}", "lowest to highest"):
            table.add_column(heading, overflow="fold")
        for setting in self.settings:
            table.add_row(
                *(Text(_text(setting.params.get(name))) for name in names),
                str(len(setting.trials)),
                f"{setting.mean:.4g}",
                f"{setting.low:.3g} to {setting.high:.3g}",
            )
        return table


def _without_seed(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != SEED}


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_text(part) for part in value) + "]"
    return "" if value is None else str(value)
