"""An episode while it is played, as callbacks see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.trajectory import Task, Trajectory
from rllib_agentic.trajectory.turn import Turn


class EpisodeEvent(StrEnum):
    """What happened to an episode; the values are the names of RLlib's callbacks."""

    CREATED = "on_episode_created"
    START = "on_episode_start"
    STEP = "on_episode_step"
    END = "on_episode_end"


@dataclass(slots=True)
class LiveEpisode:
    """One attempt at an episode. It is there to be read, apart from ``custom_data``.

    Attributes:
        task: what it is about.
        group_id: the group it belongs to.
        member: number within the group.
        prompt: the messages that opened it; empty before the start.
        turns: the turns so far, the newest last.
        trajectory: the outcome; None before the end. Where ``trajectory.invalid`` is set, infrastructure failed, and
            the episode may be drawn again as another attempt.
        custom_data: whatever a callback wants to keep between its calls.
    """

    task: Task
    group_id: str
    member: int
    prompt: tuple[Message, ...] = ()
    turns: Sequence[Turn] = ()
    trajectory: Trajectory | None = None
    custom_data: dict[str, Any] = field(default_factory=dict)

    @property
    def id_(self) -> str:
        """The episode's name; attempts at the same episode share it."""
        return f"{self.group_id}/{self.member}"

    @property
    def is_done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.trajectory is not None

    def get_return(self) -> float:
        """The sum of the environment's rewards so far."""
        return float(sum(turn.reward for turn in self.turns))

    def __len__(self) -> int:
        return len(self.turns)


class EpisodeObserver(Protocol):
    """Is told of every event. It runs between the steps of all episodes of a runner: what is slow holds them all up."""

    def __call__(self, event: EpisodeEvent, episode: LiveEpisode) -> None:
        """What it raises counts as a bug and ends the rollout."""
        ...
