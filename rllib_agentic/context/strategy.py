"""Context strategies: what the policy sees before each turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rllib_agentic.components import Settings
from rllib_agentic.rendering.renderer import Exchange, Renderer
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import FinishReason, Ids


@dataclass(frozen=True, slots=True)
class Extend:
    """Go on in the same segment: append these ids (context, never trained)."""

    added_ids: Ids


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Open a new segment whose context is exactly these ids."""

    context_ids: Ids


@dataclass(frozen=True, slots=True)
class Note:
    """What was written when a strategy asked for it.

    Attributes:
        text: decoded.
        ids: as the policy sampled them; None where another model wrote.
        finish_reason: why it ended.
    """

    text: str
    ids: Ids | None
    finish_reason: FinishReason = FinishReason.STOP


@dataclass(frozen=True, slots=True)
class Ask:
    """Have a note written before the context goes on.

    Where the policy writes, it does so in the context ``step``, and its note is a turn without an answer of the
    environment: trained like any other, or left out of the trajectory.

    Attributes:
        step: the policy's context for writing.
        messages: the same conversation as messages, for a writer with a chat format of its own.
        max_tokens: the most tokens of the note.
        trained: whether the policy's note becomes a turn of the trajectory.
        by_policy: whether the policy writes, or the runner's other model.
        then: the context of the next turn, given the note; None where there was no room to write one.
    """

    step: Extend | Rewrite
    messages: Sequence[Message]
    max_tokens: int
    trained: bool
    by_policy: bool
    then: Callable[[Note | None], Rewrite]


class ContextStrategy(Protocol):
    """Decides, before every turn but the first, how the context goes on. One object an episode."""

    def next(
        self,
        renderer: Renderer,
        prompt: Sequence[Message],
        exchanges: Sequence[Exchange],
        segment_ids: Ids,
        *,
        tools: Sequence[dict[str, Any]] = (),
    ) -> Extend | Rewrite | Ask:
        """The context for the next turn.

        Args:
            renderer: the model's chat format.
            prompt: the reset's messages: system and task.
            exchanges: all turns so far; the last one's observation is not yet in the context.
            segment_ids: int32, the current segment, ending with the last turn's sampled ids.
            tools: the tool definitions that the prompt was rendered with.
        """
        ...


class ContextSettings(Settings, ABC):
    """A member of the family ``context``: settings that make one strategy an episode."""

    @abstractmethod
    def make(self, max_context_tokens: int | None = None) -> ContextStrategy:
        """A strategy for one episode.

        Args:
            max_context_tokens: the rollout's limit of a segment, for strategies that act on a share of it.
        """


def length_after(segment_ids: Ids, step: Extend | Rewrite) -> int:
    """How many tokens the context has once a step is taken."""
    return len(segment_ids) + len(step.added_ids) if isinstance(step, Extend) else len(step.context_ids)
