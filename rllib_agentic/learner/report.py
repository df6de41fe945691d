"""What a training call reports: sums and counts, so that numbers depend on neither micro-batches nor learners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rllib_agentic.losses.importance import mismatch
from rllib_agentic.losses.masked import masked_sum


@dataclass(frozen=True, slots=True)
class LearnerReport:
    """One learner's part of a training call.

    Attributes:
        sums: totals over this learner's action tokens (or micro-batches); learners' totals add up.
        counts: how many tokens stand behind a sum that is reported as a mean; 0 or missing: the sum itself is reported.
        maxima: largest values; the largest of all learners is reported.
        shared: numbers that every learner has alike, such as the gradient norm.
        mismatch: float32 ``[A]``, learner minus engine logprobs, of tokens scored before the first optimizer step.
        seconds: wall time of the call.
    """

    sums: Mapping[str, float]
    counts: Mapping[str, float]
    maxima: Mapping[str, float]
    shared: Mapping[str, float]
    mismatch: npt.NDArray[np.float32]
    seconds: float


def merge_reports(reports: Sequence[LearnerReport]) -> dict[str, float]:
    """Join the reports of all learners into one flat dict of metrics.

    Means are over action tokens, ``tokens_per_s`` counts row tokens (without padding) against the slowest learner.

    Example:
        >>> one = LearnerReport({"entropy": 3.0}, {"entropy": 2.0}, {}, {"lr": 0.1}, np.zeros(0, np.float32), 1.0)
        >>> two = LearnerReport({"entropy": 1.0}, {"entropy": 2.0}, {}, {"lr": 0.1}, np.zeros(0, np.float32), 1.0)
        >>> merge_reports([one, two])
        {'lr': 0.1, 'entropy': 1.0}
    """
    metrics = dict(reports[0].shared)
    for name in {name: None for report in reports for name in report.sums}:
        total = sum(report.sums.get(name, 0.0) for report in reports)
        count = sum(report.counts.get(name, 0.0) for report in reports)
        metrics[name] = total / count if count else total
    for name in {name: None for report in reports for name in report.maxima}:
        metrics[name] = max(report.maxima[name] for report in reports if name in report.maxima)
    steps = metrics.get("optimizer_steps", 0.0) + metrics.get("skipped_steps", 0.0)
    if "policy_loss" in metrics:
        metrics["policy_loss"] /= max(steps, 1.0)
    if "row_tokens" in metrics:
        metrics["tokens_per_s"] = metrics.pop("row_tokens") / max(max(r.seconds for r in reports), 1e-9)
    found = mismatch(np.concatenate([report.mismatch for report in reports]))
    return metrics | {f"mismatch_{name}": value for name, value in found.items()}


@dataclass(slots=True)
class Tally:
    """Collects a report on the device, without a transfer before :meth:`report`."""

    sums: dict[str, Tensor | float] = field(default_factory=dict)
    counts: dict[str, Tensor | float] = field(default_factory=dict)
    maxima: dict[str, Tensor] = field(default_factory=dict)
    shared: dict[str, float] = field(default_factory=dict)
    mismatch: list[Tensor] = field(default_factory=list)

    def mean(self, name: str, values: Tensor, mask: Tensor) -> None:
        """Take the selected values into a mean over tokens."""
        self.add(name, masked_sum(values.detach().double(), mask))
        self.counts[name] = self.counts.get(name, 0) + mask.sum()

    def add(self, name: str, value: Tensor | float) -> None:
        """Add to a total."""
        self.sums[name] = self.sums.get(name, 0.0) + (value.detach() if isinstance(value, Tensor) else value)

    def largest(self, name: str, values: Tensor, mask: Tensor) -> None:
        """Take the selected values into a maximum."""
        here = torch.where(mask, values.detach(), -torch.inf).max()
        self.maxima[name] = torch.maximum(self.maxima[name], here) if name in self.maxima else here

    def report(self, seconds: float) -> LearnerReport:
        """Everything so far as plain numbers."""
        parts = [part.float().cpu().numpy() for part in self.mismatch]
        return LearnerReport(
            sums={name: float(value) for name, value in self.sums.items()},
            counts={name: float(value) for name, value in self.counts.items()},
            maxima={name: float(value) for name, value in self.maxima.items()},
            shared=dict(self.shared),
            mismatch=np.concatenate([np.zeros(0, np.float32), *parts]),
            seconds=seconds,
        )
