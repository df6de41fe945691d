"""What a run shows while it works: a live view in a terminal, a plain line per iteration anywhere else."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Mapping
from itertools import takewhile
from numbers import Real
from typing import Any, Literal, TextIO

from ray.tune import Callback
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rllib_agentic.tracking.events import events_of
from rllib_agentic.tracking.metrics import scalars
from rllib_agentic.tracking.progress_rows import TrialRow
from rllib_agentic.tracking.takeover import Takeovers

_MOST_ROWS = 16


class ProgressCallback(Callback):
    """Shows iteration, success rate and its curve, return, entropy, tokens per second and time left.

    Use it in place of Tune's own tables: ``RunConfig(verbose=0, callbacks=[ProgressCallback()])``.

    Args:
        stream: where to write: ``stdout``, or ``stderr`` where standard output is for a machine; by name, since Tune
            stores its callbacks with the experiment. An open text file serves too, where nothing is resumed.
        stop: stop criteria, for the time left; where None, those of the experiment.
        live: whether to redraw in place; where None, only if ``stream`` is a terminal.
    """

    def __init__(
        self,
        stream: TextIO | Literal["stdout", "stderr"] = "stdout",
        *,
        stop: Mapping[str, float] | None = None,
        live: bool | None = None,
    ) -> None:
        self._stream = stream
        self._stop = _numbers(stop)
        self._stop_given = stop is not None
        self._wants_live = live
        self._rows: dict[str, TrialRow] = {}
        self._live: Live | None = None
        self._console: Console | None = None
        self._takeovers = Takeovers()

    def setup(
        self, stop: Any = None, num_samples: int | None = None, total_num_samples: int | None = None, **info: Any
    ) -> None:
        """Tune begins: learn the stop criteria."""
        if not self._stop_given and isinstance(stop, Mapping):
            self._stop = _numbers(stop)

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial begins or goes on, perhaps from another one's checkpoint."""
        row = self._row(trial)
        if (change := self._takeovers.noticed(trial)) is not None:
            self._print(f"{row.name}: {change}", style="bold yellow")
        self._refresh()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """One more result."""
        row = self._row(trial)
        row.add(scalars(result).values)
        if self._live is None:
            self._print(row.line())
        for event in events_of(result):
            self._print(f"{row.name}: {event}", style="bold yellow")
        for warning in row.warnings():
            self._print(f"{row.name}: warning: {warning}", style="yellow")
        self._refresh()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial ended well."""
        self._row(trial).state = "done"
        self._refresh()

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial failed: say so at once, with the place of its traceback."""
        row = self._row(trial)
        row.state = "failed"
        self._print(f"{row.name}: failed; the traceback is in {trial.error_file}", style="bold red")
        self._refresh()

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """Leave the last state of the view on the screen."""
        self._close()

    def get_state(self) -> None:
        """Nothing to keep: the view begins anew on resume."""
        return None

    def _row(self, trial: Any) -> TrialRow:
        if trial.trial_id not in self._rows:
            self._open()
            name = str(trial)
            self._rows[trial.trial_id] = TrialRow(name, self._stop)
        return self._rows[trial.trial_id]

    def _open(self) -> None:
        if self._console is not None:
            return
        self._console = Console(
            file=getattr(sys, self._stream) if isinstance(self._stream, str) else self._stream,
            highlight=False,
            soft_wrap=True,
        )
        if self._console.is_terminal if self._wants_live is None else self._wants_live:
            self._live = Live(console=self._console, refresh_per_second=2, transient=False)
            self._live.start()
            atexit.register(self._close)

    def _close(self) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
            self._live.stop()
            self._live = None
            atexit.unregister(self._close)

    def _print(self, text: str, style: str | None = None) -> None:
        assert self._console is not None
        self._console.print(Text(text, style or ""))

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._table())

    def _table(self) -> Table:
        rows = list(self._rows.values())
        shown = [row for row in rows if row.state == "running"] + [row for row in rows if row.state != "running"]
        cells = [(row, row.cells()) for row in shown[:_MOST_ROWS]]
        labels = list(dict.fromkeys(label for _, labelled in cells for label in labelled))
        short = _short_names([row.name for row in rows])
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("trial", "iteration", *labels, "success so far", "left", ""):
            table.add_column(heading, no_wrap=heading != "trial", justify="right" if heading in labels else "left")
        for row, labelled in cells:
            style = {"failed": "red", "done": "green"}.get(row.state, "")
            values = [labelled.get(label, "") for label in labels]
            table.add_row(
                Text(short[row.name]),
                row.iteration,
                *values,
                Text(row.curve, "cyan"),
                row.left,
                row.state,
                style=style,
            )
        if len(rows) > _MOST_ROWS:
            table.add_row(Text(f"and {len(rows) - _MOST_ROWS} more", "dim"))
        return table


def _short_names(names: list[str]) -> dict[str, str]:
    """Names without the parts that all of them begin with; a name alone stays as it is."""
    parts = [name.split("_") for name in names]
    shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False)))
    return {name: "_".join(split[shared:]) or name for name, split in zip(names, parts, strict=True)}


def _numbers(stop: Mapping[str, Any] | None) -> dict[str, float]:
    return {key: float(value) for key, value in (stop or {}).items() if isinstance(value, Real)}
