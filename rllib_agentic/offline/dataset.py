"""Stored trajectories in memory: chosen, checked against the model that is to learn from them, grouped."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rllib_agentic.envs.env import EnvSchema
from rllib_agentic.errors import InputError
from rllib_agentic.offline.aside import run_aside
from rllib_agentic.offline.retelling import retold, speaks
from rllib_agentic.offline.settings import OfflineSettings
from rllib_agentic.offline.stream import endless
from rllib_agentic.rollout.spoken import Speech
from rllib_agentic.store import TrajectoryReader, find_stores
from rllib_agentic.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class OfflineData:
    """Trajectories to learn from.

    Attributes:
        trajectories: in the order in which they were read. Equal ``group_id`` means one group of one store.
        counts: how many were ``read``, left out (``unwanted``, ``too_long``, ``cut``) and ``retold``.
    """

    trajectories: tuple[Trajectory, ...]
    counts: dict[str, int] = field(default_factory=dict)

    def batch(self, number: int, size: int, seed: int) -> list[Trajectory]:
        """The ``number``-th batch, from 0: every trajectory comes up once before any comes again."""
        chosen = endless(len(self.trajectories), number * size, size, seed, "offline")
        return [self.trajectories[i] for i in chosen]

    def groups(self) -> list[list[Trajectory]]:
        """The trajectories by group, in order."""
        groups: dict[str, list[Trajectory]] = {}
        for trajectory in self.trajectories:
            groups.setdefault(trajectory.group_id, []).append(trajectory)
        return list(groups.values())


def load_offline(
    settings: OfflineSettings,
    speech: Speech,
    collected: Iterable[Trajectory] = (),
    *,
    schemas: Mapping[str, EnvSchema] | None = None,
) -> OfflineData:
    """Read, choose, and make tokens of the model's own where the stored ones are not.

    Args:
        settings: which.
        speech: the chat format, tokenizer and limits of the run. A trajectory with a segment of more than
            ``max_context_tokens`` is left out; legal-token masks are dropped where ``legal_tokens`` is off.
        collected: further trajectories, made for this run; the same choice is made among them.
        schemas: of the environments that the trajectories are from, for their tools and stop strings; those of
            ``speech`` where one is not named.

    Raises:
        InputError: a path without trajectories; nothing left; or tokens of another model where ``tokens`` is
            ``stored``.
    """

    def speech_of(env: str) -> Speech:
        return speech.to(schemas[env]) if schemas and env in schemas else speech

    return run_aside(_load(settings, speech_of, collected))


async def _load(
    settings: OfflineSettings, speech_of: Callable[[str], Speech], collected: Iterable[Trajectory]
) -> OfflineData:
    counts: Counter[str] = Counter()
    found: list[Trajectory] = []
    for trajectory in [*_stored(settings.paths), *collected]:
        counts["read"] += 1
        if trajectory.invalid is not None or not settings.wants(
            success=trajectory.success, total_reward=trajectory.total_reward
        ):
            counts["unwanted"] += 1
            continue
        fitting = await _in_our_tokens(trajectory, settings, speech_of(trajectory.task.env), counts)
        if fitting is not None:
            found.append(fitting)
        if len(found) == settings.max_trajectories:
            break
    if not found:
        left_out = ", ".join(f"{name}: {number}" for name, number in counts.items())
        raise InputError(
            f"config.offline: no trajectory is left to learn from ({left_out or 'none was named'}); look at them with "
            "`rllib trajectories list`"
        )
    return OfflineData(tuple(found), dict(counts))


def _stored(paths: Sequence[str]) -> Iterator[Trajectory]:
    for path in paths:
        folder = Path(path).expanduser()
        if not folder.is_absolute():  # Tune runs trials in folders of their own
            folder = Path(os.environ.get("TUNE_ORIG_WORKING_DIR", "."), folder)
        stores = find_stores(folder)
        if not stores:
            raise InputError(
                f"config.offline.paths: there are no stored trajectories in {str(folder)!r}; "
                "collect some with `rllib envs collect`, or name the folder of a run"
            )
        for store in stores:
            for stored in TrajectoryReader(store):
                trajectory = stored.trajectory
                yield replace(trajectory, group_id=f"{store}/{stored.iteration}/{trajectory.group_id}")


async def _in_our_tokens(
    trajectory: Trajectory, settings: OfflineSettings, speech: Speech, counts: Counter[str]
) -> Trajectory | None:
    if settings.tokens == "texts" or not speaks(speech, trajectory):
        if settings.tokens == "stored":
            raise InputError(
                f"config.offline: the stored tokens of {trajectory.task} are not what this model's tokenizer and chat "
                "format make of its texts; set offline.tokens to 'auto' to encode the texts anew"
            )
        if trajectory.cut_by_length:  # where its last text was cut, no end of turn was said
            counts["cut"] += 1
            return None
        whole, trajectory = len(trajectory.turns), await retold(speech, trajectory)
        if trajectory.invalid is not None or len(trajectory.turns) < whole or trajectory.cut_by_length:
            counts["too_long"] += 1
            return None
        counts["retold"] += 1
    longest = max(len(trajectory.segment_ids(segment)) for segment in {turn.segment for turn in trajectory.turns})
    if longest > speech.settings.max_context_tokens:
        counts["too_long"] += 1
        return None
    if not speech.settings.legal_tokens:
        return replace(trajectory, turns=tuple(replace(turn, legal_tokens=None) for turn in trajectory.turns))
    return trajectory
