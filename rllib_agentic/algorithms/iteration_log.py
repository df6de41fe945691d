"""What one iteration logs into RLlib's metrics, and nothing else in its result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
)
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from rllib_agentic.errors import InputError

Path = tuple[str, ...]


class IterationLog:
    """Logs values for one result each.

    RLlib's logger gives NaN for every key that it has ever known and that was not logged this time. Such keys are
    taken out of the result again: an absent value stays apart from one that is not a number.

    Args:
        logger: the algorithm's.
    """

    def __init__(self, logger: MetricsLogger) -> None:
        self._logger = logger
        self._sections = {ENV_RUNNER_RESULTS, LEARNER_RESULTS}
        self._logged: set[Path] = set()

    def values(self, values: Mapping[str, Any], key: str | Path) -> None:
        """Log this iteration's values below ``key``; a name ``a/b`` is a value ``b`` in ``a``."""
        prefix = (key,) if isinstance(key, str) else key
        for name, value in values.items():
            self._log((*prefix, *name.split("/")), value, window=1)

    def samples(self, values: Mapping[str, float], sampling_s: float) -> None:
        """Log the metrics of sampled episodes, with the speed of sampling and RLlib's own counters."""
        rest = {name: value for name, value in values.items() if name != NUM_EPISODES}
        rest["tokens_per_s"] = values.get("action_tokens", 0.0) / max(sampling_s, 1e-9)
        self.values(rest, ENV_RUNNER_RESULTS)
        episodes = values[NUM_EPISODES]
        steps = round(values.get("num_turns_mean", 0.0) * values.get("num_valid_episodes", 0.0))
        for name, amount in ((NUM_EPISODES, episodes), (NUM_ENV_STEPS_SAMPLED, steps)):
            self._log((ENV_RUNNER_RESULTS, name), amount, reduce="sum")
        for name, amount in ((NUM_EPISODES_LIFETIME, episodes), (NUM_ENV_STEPS_SAMPLED_LIFETIME, steps)):
            self._log((ENV_RUNNER_RESULTS, name), amount, reduce="lifetime_sum")

    def of_callbacks(self, logged: Iterable[Mapping[str, Any]], taken: Iterable[str]) -> None:
        """Merge what callbacks logged on the runners.

        Args:
            logged: a reduced logger a runner.
            taken: names of the iteration's own metrics.

        Raises:
            InputError: a callback logs under one of them.
        """
        found = list(logged)
        own = {name.split("/")[0] for name in taken} | {NUM_EPISODES_LIFETIME, NUM_ENV_STEPS_SAMPLED_LIFETIME}
        for part in found:
            if clash := sorted(own & set(part)):
                raise InputError(f"config.callbacks: {clash[0]!r} is a metric of rllib_agentic; log under another name")
            self._logged |= {(ENV_RUNNER_RESULTS, *path) for path in _paths(part)}
        if found:
            self._logger.aggregate(found, key=ENV_RUNNER_RESULTS)

    def finish(self, result: dict[str, Any]) -> None:
        """Take what was not logged since the last call out of ``result``."""
        for section in self._sections & result.keys():
            result[section] = self._without_silent(result[section], (section,))
        self._logged.clear()

    def state(self) -> list[str]:
        """For the checkpoint: sections that RLlib's logger knows, and will know again when it is restored."""
        return sorted(self._sections)

    def set_state(self, state: Iterable[str]) -> None:
        """Take those of a checkpoint too, which may be of an algorithm that logs other ones."""
        self._sections |= set(state)

    def _log(self, path: Path, value: Any, **how: Any) -> None:
        self._sections.add(path[0])
        self._logged.add(path)
        self._logger.log_value(path, value, **how)

    def _without_silent(self, node: Any, path: Path) -> Any:
        if not isinstance(node, Mapping):
            return node
        return {
            key: self._without_silent(value, (*path, key))
            for key, value in node.items()
            if not (_is_nan(value) and (*path, key) not in self._logged)
        }


def compiled(logged: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The values of what callbacks logged on the runners, outside of any iteration."""
    logger = MetricsLogger(root=True)
    logger.aggregate(list(logged))
    return logger.compile()


def _paths(node: Mapping[str, Any], path: Path = ()) -> Iterable[Path]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _paths(value, (*path, key))
        else:
            yield (*path, key)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
