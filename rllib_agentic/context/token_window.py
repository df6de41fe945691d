"""Token window: the prompt and as many of the last exchanges as a token budget holds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from pydantic import Field, model_validator

from rllib_agentic.context.append_only import AppendOnly
from rllib_agentic.context.strategy import ContextSettings, ContextStrategy, Exchange, Extend, Rewrite
from rllib_agentic.rendering.renderer import Renderer
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import Ids


class TokenWindow(ContextSettings):
    """Appends until the context would pass ``max_tokens``; then a new segment keeps the last ``keep_tokens``.

    The prompt and the last exchange always stay, whatever they cost: what is too long even so is the business of the
    rollout's own limits.

    Attributes:
        max_tokens: most context tokens before a turn, prompt included.
        keep_tokens: size of the new context after an overflow, prompt included; half of ``max_tokens`` where None.
    """

    max_tokens: int = Field(default=4096, ge=1)
    keep_tokens: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check_keep(self) -> TokenWindow:
        if self.keep_tokens is not None and self.keep_tokens > self.max_tokens:
            raise ValueError(f"keep_tokens={self.keep_tokens} is more than max_tokens={self.max_tokens}")
        return self

    def make(self) -> ContextStrategy:
        """Itself: what is dropped follows from the segment's length."""
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
        step = AppendOnly().next(renderer, prompt, exchanges, segment_ids, tools=tools)
        length = len(segment_ids) + len(step.added_ids) if isinstance(step, Extend) else len(step.context_ids)
        if length <= self.max_tokens:
            return step
        room = self.max_tokens // 2 if self.keep_tokens is None else self.keep_tokens

        def context(first: int) -> Ids:
            return renderer.render_exchanges(prompt, exchanges[first:], tools=tools)

        first = bisect_left(range(len(exchanges) - 1), True, key=lambda number: len(context(number)) <= room)
        return Rewrite(context(first))
