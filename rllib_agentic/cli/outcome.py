"""What came of an experiment: trials, pass criteria, and the one JSON object that ``--json`` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rllib_agentic.tracking.metrics import scalars


@dataclass(frozen=True, slots=True)
class Criterion:
    """One pass criterion: the metric must reach ``wanted``."""

    wanted: float
    got: float | None

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.got is not None and math.isfinite(self.got) and self.got >= self.wanted


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """One trial at its end.

    Attributes:
        name: the trial's.
        status: ``finished``, ``interrupted``, ``stopped`` (by an alarm) or ``failed``.
        iterations: how many were completed in all, those before a resume included.
        metrics: the last result, flat (``a/b/c``), finite numbers only.
        checkpoint: folder of the last checkpoint.
        folder: the trial's folder.
        pass_criteria: by metric.
        error: what ended it, where it failed or was stopped.
        params: what the search filled in: pairs of a place in the configuration and the value there.
    """

    name: str
    status: str
    iterations: int
    metrics: Mapping[str, float]
    checkpoint: str | None
    folder: str
    pass_criteria: Mapping[str, Criterion] = field(default_factory=dict)
    error: str | None = None
    params: Sequence[Sequence[Any]] = ()

    @property
    def passed(self) -> bool:
        """Whether it ended well and met its criteria."""
        return self.status not in ("failed", "stopped") and all(
            criterion.met for criterion in self.pass_criteria.values()
        )

    def as_json(self) -> dict[str, Any]:
        """The form of ``--json``."""
        entry: dict[str, Any] = {
            "name": self.name,
            "status": self.status,
            "iterations": self.iterations,
            "metrics": dict(self.metrics),
            "checkpoint": self.checkpoint,
            "pass_criteria": {
                key: {"wanted": c.wanted, "got": c.got, "met": c.met} for key, c in self.pass_criteria.items()
            },
        }
        if self.params:
            entry["params"] = [list(pair) for pair in self.params]
        return entry if self.error is None else {**entry, "error": self.error}


def judge(criteria: Mapping[str, float], metrics: Mapping[str, float]) -> dict[str, Criterion]:
    """Hold the last result against the criteria; a metric that is absent is not met."""
    return {key: Criterion(wanted, metrics.get(key)) for key, wanted in criteria.items()}


def flat_metrics(result: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a result, ``config`` left out."""
    return dict(scalars({key: value for key, value in result.items() if key != "config"}).values)
