"""A worker's figures on Ray's metrics endpoint, where Prometheus reads them."""

from __future__ import annotations

from ray.util.metrics import Counter, Gauge

from rllib_agentic.envs.latencies import Latencies
from rllib_agentic.envs.service_metrics import PERCENTILES
from rllib_agentic.envs.wire import MetricsAnswer, WorkerMetrics

_TAGS = ("env", "app")


class MetricsExporter:
    """Hands on what has come since the last time, in bulk: a step pays nothing for it.

    Names begin with ``rllib_env_``: ``sessions``, ``sessions_begun``, ``sessions_expired``, ``steps``,
    ``errors`` (tag ``code``), ``stuck_calls``, ``reset_latency_s`` and ``step_latency_s`` (tag ``percentile``, over all
    since the worker began). Ray adds the tags of node and worker.

    Args:
        app: name of the Serve application, a tag of every figure.
    """

    def __init__(self, app: str) -> None:
        self._app = app
        self._sessions = Gauge("rllib_env_sessions", "live sessions", _TAGS)
        self._stuck = Gauge("rllib_env_stuck_calls", "calls into environments that never came back", _TAGS)
        self._begun = Counter("rllib_env_sessions_begun", "episodes begun", _TAGS)
        self._expired = Counter("rllib_env_sessions_expired", "sessions closed for want of a request", _TAGS)
        self._steps = Counter("rllib_env_steps", "steps answered", _TAGS)
        self._errors = Counter("rllib_env_errors", "failed requests", (*_TAGS, "code"))
        quantiles = (*_TAGS, "percentile")
        self._resets = Gauge("rllib_env_reset_latency_s", "time of a reset", quantiles)
        self._step_times = Gauge("rllib_env_step_latency_s", "time of a step", quantiles)
        self._before: WorkerMetrics | None = None

    def export(self, answer: MetricsAnswer) -> None:
        """Hand on the figures of one worker."""
        (now,) = answer.workers
        before, self._before = self._before, now
        tags = {"env": answer.env, "app": self._app}
        self._sessions.set(now.sessions, tags)
        self._stuck.set(now.stuck_calls, tags)
        for counter, field in (
            (self._begun, "sessions_begun"),
            (self._expired, "sessions_expired"),
            (self._steps, "steps"),
        ):
            _add(counter, getattr(now, field) - (getattr(before, field) if before else 0), tags)
        for code, count in now.errors.items():
            _add(self._errors, count - (before.errors.get(code, 0) if before else 0), tags | {"code": code})
        for gauge, counts in ((self._resets, now.reset_latencies), (self._step_times, now.step_latencies)):
            if counts:
                seen = Latencies(counts)
                for percent in PERCENTILES:
                    gauge.set(seen.percentile(percent), tags | {"percentile": str(percent)})


def _add(counter: Counter, amount: int, tags: dict[str, str]) -> None:
    if amount > 0:
        counter.inc(amount, tags)
