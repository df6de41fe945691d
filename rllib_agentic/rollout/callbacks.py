"""RLlib's callbacks, called from our runners: ``config.callbacks(MyCallbacks)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.utils import force_list
from ray.rllib.utils.metrics.stats.series import SeriesStats

from rllib_agentic.rollout.live_episode import EpisodeEvent, EpisodeObserver, LiveEpisode
from rllib_agentic.trajectory.trajectory import Trajectory

_OF_EPISODES = tuple(str(event) for event in EpisodeEvent)


class RunnerCallbacks:
    """Calls what the user gave for episodes and samples, with RLlib's names and keyword arguments.

    ``episode`` is a :class:`~rllib_agentic.rollout.live_episode.LiveEpisode`, ``samples`` the list of trajectories.
    There is no gymnasium environment, so ``env`` is None, and ``env_index`` is the episode's number in its group.

    Args:
        runner: the env runner; its ``config`` names the callbacks, its ``metrics`` is their ``metrics_logger``.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._objects: list[RLlibCallback] = [cls() for cls in force_list(runner.config.callbacks_class)]

    @property
    def observer(self) -> EpisodeObserver | None:
        """For the episode loop; None where nobody listens, so that it costs nothing."""
        listens = any(map(self._functions, _OF_EPISODES)) or any(
            getattr(type(one), name) is not getattr(RLlibCallback, name)
            for one in self._objects
            for name in _OF_EPISODES
        )
        return self._episode if listens else None

    def sample_end(self, trajectories: list[Trajectory]) -> None:
        """After all episodes of a job."""
        self._call("on_sample_end", samples=trajectories)

    def take_logged(self) -> dict[str, Any] | None:
        """What callbacks logged since the last call, reduced for the driver's logger; None where that is nothing.

        RLlib's logger hands over a NaN for what was logged before and not since; such entries are left out.
        """
        logger = self._runner.metrics
        silent = _silent(logger.stats)
        return _without(logger.reduce(), silent) or None

    def _episode(self, event: EpisodeEvent, episode: LiveEpisode) -> None:
        details: dict[str, Any] = {"prev_episode_chunks": []} if event is EpisodeEvent.END else {}
        module = self._runner.module
        self._call(str(event), episode=episode, env=None, env_index=episode.member, rl_module=module, **details)

    def _call(self, name: str, **arguments: Any) -> None:
        make_callback(
            name,
            callbacks_objects=self._objects,
            callbacks_functions=self._functions(name),
            kwargs={"env_runner": self._runner, "metrics_logger": self._runner.metrics, **arguments},
        )

    def _functions(self, name: str) -> list[Any]:
        return force_list(getattr(self._runner.config, f"callbacks_{name}"))


def _silent(stats: Mapping[str, Any]) -> dict[str, Any]:
    """The keys whose stats hold nothing now, nested as ``stats`` is; what keeps a value for ever is never silent."""
    found = {key: _silent(part) if isinstance(part, Mapping) else _is_empty(part) for key, part in stats.items()}
    return {key: part for key, part in found.items() if part}


def _is_empty(stats: Any) -> bool:
    return isinstance(stats, SeriesStats) and len(stats) == 0


def _without(reduced: Mapping[str, Any], silent: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, part in reduced.items():
        if isinstance(part, Mapping):
            part = _without(part, silent.get(key, {}))
        elif key in silent:
            continue
        if not isinstance(part, Mapping) or part:
            kept[key] = part
    return kept
