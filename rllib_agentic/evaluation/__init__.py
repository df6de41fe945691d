"""What evaluations mean: rates, intervals, and k samples a task."""

from rllib_agentic.evaluation.at_k import avg_at_k, mean_pass_at_k, pass_at_k
from rllib_agentic.evaluation.statistics import (
    Difference,
    Interval,
    mean_interval,
    paired_difference,
    success_interval,
    wilson_interval,
)

__all__ = [
    "Difference",
    "Interval",
    "avg_at_k",
    "mean_interval",
    "mean_pass_at_k",
    "paired_difference",
    "pass_at_k",
    "success_interval",
    "wilson_interval",
]
