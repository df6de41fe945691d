"""Wall time to a fixed number of updates with rollouts that wait for the learner, and with rollouts that do not.

    python benchmarks/async.py                                   # tiny preset, 12 updates, 0.5 s an environment step
    python benchmarks/async.py --latency 0.1 --updates 30
    python benchmarks/async.py --staleness 0 1 2 4

The environment is the bandit with four pulls, each of which sleeps. The same run (GRPO, one seed) is made with every
bound on staleness; the time counts from the second update on, so that starting up is left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from typing import Any

import ray
from rich.console import Console
from rich.table import Table

from rllib_agentic.algorithms.grpo import GRPOConfig
from rllib_agentic.envs import registry
from rllib_agentic.envs.env import EnvSchema, StepResult
from rllib_agentic.envs.registry import EnvEntry
from serve_envs.bandit.env import Bandit

PULLS = 4


class Slow(Bandit):
    """A bandit whose every pull takes ``latency_s``."""

    quick = False

    def __init__(self, latency_s: float = 0.5) -> None:
        super().__init__(pulls=PULLS)
        self._latency_s = latency_s

    def schema(self) -> EnvSchema:
        """The bandit's, under another name."""
        return dataclasses.replace(super().schema(), name="slow")

    def step(self, action: str) -> StepResult:
        """Wait, then pull."""
        time.sleep(self._latency_s)
        return super().step(action)


def register() -> None:
    """Make the environment known in this process, where the runner is too."""
    registry._BUILT_IN = (*registry._BUILT_IN, EnvEntry("slow", f"{Slow.__module__}:Slow"))  # type: ignore[assignment]


def measure(max_staleness: int, options: argparse.Namespace) -> dict[str, Any]:
    """One run."""
    settings = {
        "env_config": {"backend": "local", "args": {"latency_s": options.latency}},
        "model": {"preset": options.model},
        "rollout": {
            "group_size": options.group,
            "groups_per_iteration": options.groups,
            "max_turns": PULLS,
            "max_staleness": max_staleness,
            "episode_timeout_s": 3600,
        },
        "store": {"enabled": False},
        "lr": 3e-4,
    }
    algo = GRPOConfig().environment("slow").update_from_dict(settings).build_algo()
    try:
        algo.train()
        began = time.perf_counter()
        results = [algo.train() for _ in range(options.updates)]
        seconds = time.perf_counter() - began
    finally:
        algo.stop()
    ahead = [result.get("asynchrony", {}) for result in results]
    return {
        "max_staleness": max_staleness,
        "seconds": seconds,
        "seconds_per_update": seconds / options.updates,
        "staleness_mean": sum(a.get("staleness_mean", 0.0) for a in ahead) / len(ahead),
        "dropped_groups": sum(a.get("dropped_groups", 0.0) for a in ahead),
        "return_last": results[-1]["env_runners"]["episode_return_mean"],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("tiny", "smollm2"), default="tiny")
    parser.add_argument("--latency", type=float, default=0.5, help="seconds an environment step")
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--groups", type=int, default=4, help="groups an update")
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args()
    register()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    found = []
    for bound in options.staleness:
        found.append(measure(bound, options))
        print(f"max_staleness {bound}: {found[-1]['seconds']:.1f} s", file=sys.stderr, flush=True)
    ray.shutdown()
    table = Table(title=f"{options.model}: {options.updates} updates of {options.groups} x {options.group} episodes")
    for column in ("max_staleness", "seconds", "s an update", "times faster", "mean staleness", "dropped groups"):
        table.add_column(column, justify="right")
    for row in found:
        table.add_row(
            str(row["max_staleness"]),
            f"{row['seconds']:.1f}",
            f"{row['seconds_per_update']:.2f}",
            f"{found[0]['seconds'] / row['seconds']:.2f}",
            f"{row['staleness_mean']:.2f}",
            f"{row['dropped_groups']:.0f}",
        )
    Console().print(table)
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
