"""Append-only context: everything stays; one segment an episode wherever the template allows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rllib_agentic.context.strategy import ContextSettings, ContextStrategy, Exchange, Extend, Rewrite
from rllib_agentic.errors import PrefixError
from rllib_agentic.rendering.renderer import Renderer
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import Ids


class AppendOnly(ContextSettings):
    """Bridges every turn; where the template rewrites history, renders it whole as a new segment."""

    def make(self, max_context_tokens: int | None = None) -> ContextStrategy:
        """Itself: it remembers nothing."""
        return self

    def next(
        self,
        renderer: Renderer,
        prompt: Sequence[Message],
        exchanges: Sequence[Exchange],
        segment_ids: Ids,
        *,
        tools: Sequence[dict[str, Any]] = (),
    ) -> Extend | Rewrite:
        """See :class:`~rllib_agentic.context.strategy.ContextStrategy`."""
        last = exchanges[-1]
        try:
            return Extend(renderer.bridge(segment_ids, last.finish_reason, last.observation))
        except PrefixError:
            return Rewrite(renderer.render_exchanges(prompt, exchanges, tools=tools))
