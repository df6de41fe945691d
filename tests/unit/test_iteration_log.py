"""What of a restored logger's memory is in the next result."""

from __future__ import annotations

import math

from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from rllib_agentic.algorithms.iteration_log import IterationLog


def test_sections_of_the_algorithm_that_a_run_follows_are_not_in_its_results() -> None:
    """RLlib's restored logger gives NaN for them: nothing is logged there any more."""
    before = MetricsLogger(root=True)
    log = IterationLog(before)
    log.values({"epochs": 3.0, "num_read": 8}, "offline")
    before.compile()
    after = MetricsLogger(root=True)
    after.set_state(before.get_state())
    following = IterationLog(after)
    following.set_state(log.state())
    following.values({"success_rate": 0.5}, "env_runners")
    result = after.compile()
    assert math.isnan(result["offline"]["epochs"])
    following.finish(result)
    assert result["offline"] == {} and result["env_runners"] == {"success_rate": 0.5}
