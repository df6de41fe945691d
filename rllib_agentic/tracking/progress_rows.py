"""What the progress view says about one trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rllib_agentic.tracking.time_left import format_duration, time_left_s

_BARS = "▁▂▃▄▅▆▇█"

SUCCESS = "env_runners/success_rate"
HELD_OUT = "evaluation/success_rate"

_SHOWN = (
    # label, metric, format; shown where the result has it
    ("success", SUCCESS, "{:.1%}"),
    ("held-out", HELD_OUT, "{:.1%}"),
    ("return", "env_runners/episode_return_mean", "{:.3g}"),
    ("entropy", "learners/default_policy/entropy", "{:.3g}"),
    ("turns", "env_runners/num_turns_mean", "{:.1f}"),
    ("tok/s", "env_runners/tokens_per_s", "{:,.0f}"),
)


@dataclass(slots=True)
class TrialRow:
    """One trial's results so far, and how they are shown."""

    name: str
    stop: Mapping[str, float]
    history: list[dict[str, float]] = field(default_factory=list)
    state: str = "starting"

    def add(self, values: dict[str, float]) -> None:
        """Take one more result."""
        self.history.append(values)
        self.state = "running"

    @property
    def iteration(self) -> str:
        """The iteration, and the last one where it is known."""
        done = int(self.history[-1].get("training_iteration", len(self.history))) if self.history else 0
        last = self.stop.get("training_iteration")
        return f"{done}/{int(last)}" if last is not None else str(done)

    @property
    def curve(self) -> str:
        """The success rate over the whole run, small."""
        return sparkline([row[SUCCESS] for row in self.history if SUCCESS in row])

    @property
    def left(self) -> str:
        """Time left, for people; empty where nobody can know."""
        seconds = time_left_s(self.history, self.stop) if self.state == "running" else None
        return "" if seconds is None else format_duration(seconds)

    def cells(self) -> dict[str, str]:
        """Label to value of what the results have; held-out success stays until the next evaluation."""
        shown = {}
        for label, metric, form in _SHOWN:
            rows = self.history if metric == HELD_OUT else self.history[-1:]
            values = [row[metric] for row in rows if metric in row]
            if values:
                shown[label] = form.format(values[-1])
        return shown

    def warnings(self) -> list[str]:
        """What is wrong with the last result, in sentences."""
        last = self.history[-1]
        trained = [value for name, value in last.items() if name.rpartition("/")[2] == "trained_tokens"]
        if trained and not any(trained):
            return [
                "nothing was trained in this iteration (trained_tokens is 0): the filters kept no group, or every "
                "episode was invalid; a loss of 0 here is no success"
            ]
        return []

    def line(self) -> str:
        """The last result in one line."""
        parts = [f"{label} {value}" for label, value in self.cells().items()]
        left = f"left {self.left}" if self.left else ""
        return "  ".join(part for part in (self.name, f"iteration {self.iteration}", *parts, left) if part)


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """Values between 0 and 1 as a line of small bars; more values than ``width`` are averaged.

    Example:
        >>> sparkline([0.0, 0.5, 1.0])
        '▁▅█'
    """
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)] if count else []
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    return "".join(_BARS[round(min(max(mean, 0.0), 1.0) * (len(_BARS) - 1))] for mean in means)
