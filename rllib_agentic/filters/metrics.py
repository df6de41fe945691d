"""What a filter reports: how much it kept, and what the kept and the dropped are like."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rllib_agentic.filters.filter import Groups
from rllib_agentic.filters.scores import reward_mean, reward_std


def filter_metrics(groups: Groups, keep: Sequence[bool]) -> dict[str, float]:
    """Numbers about one decision.

    Keys: ``groups``, ``kept_groups``, ``zero_variance_groups``; ``kept_share``; and ``kept_reward_mean``,
    ``kept_reward_variance``, ``dropped_reward_mean``, ``dropped_reward_variance``: means over the groups of the mean
    and the within-group variance of raw rewards. Groups without a valid trajectory count as groups only. A number that
    has nothing to be the mean of is left out, so all are finite.
    """
    alive = [(group, kept) for group, kept in zip(groups, keep, strict=True) if any(t.invalid is None for t in group)]
    stds = [reward_std(group) for group, _ in alive]
    means = [reward_mean(group) for group, _ in alive]
    metrics = {
        "groups": float(len(groups)),
        "kept_groups": float(sum(keep)),
        "zero_variance_groups": float(sum(std == 0.0 for std in stds)),
    }
    if groups:
        metrics["kept_share"] = sum(keep) / len(groups)
    for name, wanted in (("kept", True), ("dropped", False)):
        chosen = [i for i, (_, kept) in enumerate(alive) if kept == wanted]
        if chosen:
            metrics[f"{name}_reward_mean"] = math.fsum(means[i] for i in chosen) / len(chosen)
            metrics[f"{name}_reward_variance"] = math.fsum(stds[i] ** 2 for i in chosen) / len(chosen)
    return metrics
