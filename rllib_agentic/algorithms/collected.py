"""What one iteration sampled, over all the tries that filling the batch took."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from rllib_agentic.filters import FilterResult
from rllib_agentic.filters.metrics import filter_metrics
from rllib_agentic.trajectory import Trajectory


@dataclass(slots=True)
class Collected:
    """Groups in the order they were sampled, and which of them the filters kept.

    Attributes:
        groups: all of them, dropped ones too.
        keep: one entry a group.
        tries: how often groups were sampled.
        loss_scale: factor for the loss of a batch that stayed small.
        message: what was lost, for the log.
        metrics: of the filters over all tries, of each single one in the last try, and of the engine over all tries.
        seconds: time that sampling took.
    """

    groups: list[list[Trajectory]] = field(default_factory=list)
    keep: list[bool] = field(default_factory=list)
    tries: int = 0
    loss_scale: float = 1.0
    message: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, groups: Sequence[list[Trajectory]], filtered: FilterResult, engine: dict[str, float]) -> None:
        """Take over what one try sampled."""
        self.groups += groups
        self.keep += filtered.keep
        self.tries += 1
        of_all = filtered.metrics | filter_metrics(self.groups, self.keep)
        self.metrics |= {f"filter/{name}": value for name, value in of_all.items()}
        for name, value in engine.items():
            key = f"engine/{name}"
            self.metrics[key] = self.metrics.get(key, 0.0) + value
        self.metrics["kept_group_frac"] = sum(self.keep) / max(len(self.keep), 1)
        self.metrics["sampling_tries"] = self.tries

    def limit(self, wanted: int) -> None:
        """Keep at most ``wanted`` groups, the ones sampled first."""
        kept = itertools.accumulate(self.keep)
        self.keep = [stays and before <= wanted for stays, before in zip(self.keep, kept, strict=True)]

    @property
    def trajectories(self) -> list[Trajectory]:
        """All trajectories, group after group."""
        return [t for group in self.groups for t in group]

    @property
    def kept_flags(self) -> list[bool]:
        """For each trajectory, whether its group was kept."""
        return [stays for group, stays in zip(self.groups, self.keep, strict=True) for _ in group]
