"""A trajectory: the turns of one episode with their outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import FinishReason, Turn


@dataclass(frozen=True, slots=True)
class Task:
    """What an episode is about. Equal tasks with equal seeds are equal episodes for a deterministic policy."""

    env: str
    split: str
    index: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode, as it happened.

    Attributes:
        task: environment, split, index and environment seed.
        group_id: trajectories with the same id are one group: the same task under the same policy version.
        member: number within the group, from 0.
        prompt: the messages of the environment's reset (system and first observation), for people and the store.
        turns: in order; may be empty only where ``invalid``.
        terminated: the task ended (won, lost or answered).
        truncated: a limit ended it: turns, tokens or time. Never true together with ``terminated``.
        invalid: kind of the infrastructure failure, or None. An invalid trajectory is evidence of nothing.
        success: whether the task was solved; a field of its own, not ``reward > 0``.
        end_reason: one word for metrics: ``terminated``, ``max_turns``, ``max_context``, ``max_tokens``,
            ``timeout``, or the kind of failure.
        metrics: numbers about the whole episode.
    """

    task: Task
    group_id: str
    member: int
    prompt: tuple[Message, ...]
    turns: tuple[Turn, ...]
    terminated: bool
    truncated: bool
    success: bool
    end_reason: str
    invalid: str | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse contradictions that would poison training."""
        if self.terminated and self.truncated:
            raise ValueError("Trajectory: terminated wins over truncated; both were set")
        if self.invalid is None and not any(len(t.action_ids) for t in self.turns):
            raise ValueError("Trajectory: valid, but the policy sampled no token: there is nothing to train on")

    @property
    def total_reward(self) -> float:
        """Sum of the turns' raw rewards."""
        return float(sum(t.reward for t in self.turns))

    @property
    def num_action_tokens(self) -> int:
        """Sampled tokens: the response length. Observation tokens never count."""
        return sum(len(t.action_ids) for t in self.turns)

    @property
    def oldest_version(self) -> int | None:
        """The oldest policy version among the sampled tokens; staleness is measured from it."""
        versions = [int(t.policy_versions.min()) for t in self.turns if len(t.policy_versions)]
        return min(versions, default=None)

    @property
    def num_segments(self) -> int:
        """How many times the context was begun anew, from 1 (0 without turns)."""
        return len({t.segment for t in self.turns})

    @property
    def cut_by_length(self) -> bool:
        """Whether any turn ended at its token limit."""
        return any(t.finish_reason is FinishReason.LENGTH for t in self.turns)

    def segment_ids(self, segment: int) -> np.ndarray:
        """All tokens of one segment in order, int32 ``[T]``: exactly what the engine saw and sampled."""
        parts = [p for t in self.turns if t.segment == segment for p in (t.context_ids, t.action_ids)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)
