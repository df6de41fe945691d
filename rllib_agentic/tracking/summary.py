"""The end of a run in one table: success before and after, and where everything lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from rllib_agentic.tracking.time_left import format_duration


@dataclass(frozen=True, slots=True)
class Rate:
    """A success rate with its 95 % interval, all between 0 and 1; the interval is None where it was not reported."""

    rate: float
    low: float | None = None
    high: float | None = None
    episodes: int | None = None

    def __str__(self) -> str:
        """For people: ``40.0 % [31.0, 49.8], 100 episodes``."""
        interval = f" [{100 * self.low:.1f}, {100 * self.high:.1f}]" if None not in (self.low, self.high) else ""  # type: ignore[operator]
        episodes = f", {self.episodes} episodes" if self.episodes is not None else ""
        return f"{100 * self.rate:.1f} %{interval}{episodes}"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What came of one trial.

    Attributes:
        name: of the trial.
        iterations: how many were trained.
        seconds: training time.
        before: held-out success of the policy before training; None where it was not evaluated.
        after: held-out success at the last evaluation.
        places: what was saved, and where: ``plot``, ``checkpoint``, ``trajectories``, ``MLflow run``...
    """

    name: str
    iterations: int
    seconds: float
    before: Rate | None
    after: Rate | None
    places: Mapping[str, str]

    @property
    def rose(self) -> bool | None:
        """Whether success rose by more than chance: the two intervals do not touch; None where unknown."""
        if self.before is None or self.after is None or self.before.high is None or self.after.low is None:
            return None
        return self.after.low > self.before.high

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "name": self.name,
            "iterations": self.iterations,
            "seconds": self.seconds,
            "before": asdict(self.before) if self.before else None,
            "after": asdict(self.after) if self.after else None,
            "rose": self.rose,
            "places": dict(self.places),
        }

    def table(self) -> Table:
        """For ``rich.console.Console.print``."""
        table = Table(title=Text(self.name), title_justify="left", title_style="bold", show_header=False, box=None)
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        table.add_row("trained", f"{self.iterations} iterations in {format_duration(self.seconds)}")
        table.add_row("success before", str(self.before) if self.before else "not evaluated", style="bold")
        table.add_row("success after", str(self.after) if self.after else "not evaluated", style="bold")
        if self.before and self.after:
            verdict = {True: ", more than chance", False: ", within the intervals", None: ""}[self.rose]
            table.add_row("change", f"{100 * (self.after.rate - self.before.rate):+.1f} points{verdict}")
        for what, where in self.places.items():
            table.add_row(Text(what), Text(where))
        return table


def summarize(name: str, history: Sequence[Mapping[str, float]], places: Mapping[str, str]) -> RunSummary:
    """Sum up one trial.

    Args:
        name: of the trial.
        history: its results, flat (see :func:`~.history.read_history`).
        places: what was saved, and where.
    """
    before = [rate for row in history if (rate := _rate(row, "evaluation_at_start"))]
    after = [rate for row in history if (rate := _rate(row, "evaluation"))]
    last = history[-1] if history else {}
    return RunSummary(
        name=name,
        iterations=int(last.get("training_iteration", len(history))),
        seconds=last.get("time_total_s", 0.0),
        before=before[0] if before else None,
        after=after[-1] if after else None,
        places=dict(places),
    )


def _rate(row: Mapping[str, float], section: str) -> Rate | None:
    rate = row.get(f"{section}/success_rate")
    if rate is None:
        return None
    episodes = row.get(f"{section}/num_episodes")
    return Rate(
        rate,
        row.get(f"{section}/success_rate_low"),
        row.get(f"{section}/success_rate_high"),
        None if episodes is None else int(episodes),
    )
