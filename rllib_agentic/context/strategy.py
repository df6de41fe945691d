"""Context strategies: what the policy sees before each turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rllib_agentic.components import Settings
from rllib_agentic.rendering.renderer import Exchange, Renderer
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import Ids


@dataclass(frozen=True, slots=True)
class Extend:
    """Go on in the same segment: append these ids (context, never trained)."""

    added_ids: Ids


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Open a new segment whose context is exactly these ids."""

    context_ids: Ids


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
    ) -> Extend | Rewrite:
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
    def make(self) -> ContextStrategy:
        """A strategy for one episode."""
