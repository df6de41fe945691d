"""Append-only context: everything stays; one segment an episode wherever the template allows it."""

from __future__ import annotations

from collections.abc import Sequence

from rllib_agentic.context.strategy import Exchange, Extend, Rewrite
from rllib_agentic.errors import PrefixError
from rllib_agentic.rendering.renderer import Renderer
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import Ids


class AppendOnly:
    """Bridges every turn; where the template rewrites history, renders it whole as a new segment."""

    def next(
        self, renderer: Renderer, prompt: Sequence[Message], exchanges: Sequence[Exchange], segment_ids: Ids
    ) -> Extend | Rewrite:
        """See :class:`~rllib_agentic.context.strategy.ContextStrategy`."""
        last = exchanges[-1]
        try:
            return Extend(renderer.bridge(segment_ids, last.finish_reason, last.observation))
        except PrefixError:
            return Rewrite(renderer.render(whole_history(prompt, exchanges)))


def whole_history(prompt: Sequence[Message], exchanges: Sequence[Exchange]) -> list[Message]:
    """Prompt, then action and observation of every exchange, in order."""
    history = list(prompt)
    for exchange in exchanges:
        history.append(exchange.action)
        history.extend(exchange.observation)
    return history
