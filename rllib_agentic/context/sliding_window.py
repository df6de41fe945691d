"""Sliding window: the prompt and the last exchanges; older ones leave the context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field, model_validator

from rllib_agentic.context.append_only import AppendOnly
from rllib_agentic.context.strategy import ContextSettings, ContextStrategy, Exchange, Extend, Rewrite
from rllib_agentic.rendering.renderer import Renderer
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import Ids


class SlidingWindow(ContextSettings):
    """Keeps the prompt and at most ``turns`` exchanges; a new segment begins only where an exchange is dropped.

    With ``keep`` below ``turns`` several exchanges leave at once, so that segments are longer and the engine
    prefills less: ``turns=8, keep=4`` opens a segment every five turns instead of every turn.

    Attributes:
        turns: most past exchanges that the policy sees.
        keep: how many remain when the window overflows; ``turns`` where None.
    """

    turns: int = Field(default=4, ge=1)
    keep: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check_keep(self) -> SlidingWindow:
        if self.keep is not None and self.keep > self.turns:
            raise ValueError(
                f"keep={self.keep} is more than turns={self.turns}: a window cannot keep more than it holds"
            )
        return self

    def make(self) -> ContextStrategy:
        """Itself: what is dropped follows from the number of exchanges."""
        return self

    def first(self, exchanges: int) -> int:
        """Number of the first exchange in the context, given how many there have been.

        Example:
            >>> [SlidingWindow(turns=2).first(n) for n in range(6)]
            [0, 0, 0, 1, 2, 3]
            >>> [SlidingWindow(turns=4, keep=2).first(n) for n in range(9)]
            [0, 0, 0, 0, 0, 3, 3, 3, 6]
        """
        keep = self.turns if self.keep is None else self.keep
        stride = self.turns - keep + 1
        return max(0, exchanges - keep) // stride * stride

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
        first = self.first(len(exchanges))
        window = exchanges[first:]
        if first == self.first(len(exchanges) - 1):
            return AppendOnly().next(renderer, prompt, window, segment_ids, tools=tools)
        return Rewrite(renderer.render_exchanges(prompt, window, tools=tools))
