"""As many replicas as the sessions need: a policy for Serve's ``autoscaling_config``."""

from __future__ import annotations

import math
from typing import Any

from ray.serve.config import AutoscalingContext

SESSIONS = "sessions"
"""What replicas report, see :meth:`EnvReplica.record_autoscaling_stats`."""


def by_sessions(context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
    """The number of replicas at which each holds ``target_ongoing_requests`` live sessions.

    Serve's own policy counts calls that are under way: a session has none most of the time, so that replicas full of
    live sessions would look idle. Bounds, factors and delays of the ``autoscaling_config`` hold here too.
    """
    reports = (context.aggregated_metrics or {}).get(SESSIONS, {})
    return math.ceil(sum(reports.values()) / context.config.target_ongoing_requests), {}  # type: ignore[union-attr]
