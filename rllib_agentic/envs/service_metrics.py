"""What a service did, as numbers for results and dashboards."""

from __future__ import annotations

import math

from rllib_agentic.envs.latencies import Latencies
from rllib_agentic.envs.wire import MetricsAnswer

PERCENTILES = (50, 90, 99)


def summarize(answer: MetricsAnswer) -> dict[str, float]:
    """Totals over all workers since each began, and percentiles of resets and steps in seconds.

    Keys: ``sessions``, ``sessions_begun``, ``sessions_expired``, ``steps``, ``failed_requests``, ``errors/CODE``,
    ``stuck_calls``, ``reset_pNN_s``, ``step_pNN_s``; the percentiles only where there were calls.
    """
    workers = answer.workers
    numbers: dict[str, float] = {
        "workers": len(workers),
        "sessions": sum(worker.sessions for worker in workers),
        "sessions_begun": sum(worker.sessions_begun for worker in workers),
        "sessions_expired": sum(worker.sessions_expired for worker in workers),
        "steps": sum(worker.steps for worker in workers),
        "stuck_calls": sum(worker.stuck_calls for worker in workers),
        "failed_requests": sum(sum(worker.errors.values()) for worker in workers),
    }
    for worker in workers:
        for code, count in worker.errors.items():
            numbers[f"errors/{code}"] = numbers.get(f"errors/{code}", 0) + count
    for name, merged in (
        ("reset", Latencies(pair for worker in workers for pair in worker.reset_latencies)),
        ("step", Latencies(pair for worker in workers for pair in worker.step_latencies)),
    ):
        for percent in PERCENTILES:
            value = merged.percentile(percent)
            if not math.isnan(value):
                numbers[f"{name}_p{percent}_s"] = value
    return numbers
