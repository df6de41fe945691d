"""The renderer: from messages to token ids, once; and from sampled ids to text, for the environment only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rllib_agentic.rendering.call_markup import CallMarkup
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import FinishReason, Ids


@dataclass(frozen=True, slots=True)
class Exchange:
    """One past turn: the agent's text and ids, and the environment's answer."""

    action: Message
    action_ids: Ids
    finish_reason: FinishReason
    observation: tuple[Message, ...]


@runtime_checkable
class Renderer(Protocol):
    """Knows one model family's chat format. Content never makes control tokens."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end an agent's turn."""
        ...

    @property
    def end_of_turn_id(self) -> int:
        """The stop id that a well-formed turn ends with; it closes the legal actions of a mask."""
        ...

    @property
    def call_markup(self) -> CallMarkup | None:
        """How the format writes tool calls; None where it has no form for them."""
        ...

    def render(self, messages: Sequence[Message], *, tools: Sequence[dict[str, Any]] = ()) -> Ids:
        """The whole conversation followed by the generation prompt, int32 ``[T]``, with at most one BOS."""
        ...

    def bridge(self, prefix_ids: Ids, finish_reason: FinishReason, new_messages: Sequence[Message]) -> Ids:
        """The tokens to append after a sampled turn: turn end (if it was not sampled), new messages, generation prompt.

        Messages that say ``continues`` are appended within the turn instead, as inert text, and the agent goes on
        there: no turn end, no generation prompt (see :mod:`~rllib_agentic.rendering.continued`).

        ``concat(prefix_ids, bridge(...))`` is the next turn's context, token by token.

        Args:
            prefix_ids: the segment so far; ends with the sampled ids of the last turn.
            finish_reason: why that turn ended: a sampled stop id is not doubled, a missing one is added.
            new_messages: what the environment said.

        Raises:
            PrefixError: this template rewrites earlier turns, so no bridge exists; open a new segment.
        """
        ...

    def render_exchanges(
        self, prompt: Sequence[Message], exchanges: Sequence[Exchange], *, tools: Sequence[dict[str, Any]] = ()
    ) -> Ids:
        """A context begun anew: the prompt, then past exchanges, then the generation prompt, int32 ``[T]``.

        The agent's earlier turns come back as the ids that were sampled, never as encoded text, wherever the
        format keeps them whole. What the format drops from earlier turns (reasoning) is dropped.
        """
        ...

    def text(self, action_ids: Ids) -> str:
        """The sampled turn as text without its stop token: for environments, parsers and people."""
        ...
