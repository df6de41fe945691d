"""Sliding window: the prompt and the last exchanges, by turns or by tokens; older ones leave the context."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, model_validator

from rllib_agentic.context.append_only import AppendOnly
from rllib_agentic.context.strategy import (
    ContextSettings,
    ContextStrategy,
    Exchange,
    Extend,
    Rewrite,
    length_after,
)
from rllib_agentic.rendering.renderer import Renderer
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import Ids

_DEFAULT_TURNS = 4


class SlidingWindow(ContextSettings):
    """Keeps the prompt and the last exchanges; a new segment begins only where an exchange is dropped.

    By turns, by tokens, or by both, whichever is full first: ``{turns: 4}``, ``{max_tokens: 2048}``. Prompt and last
    exchange always stay, whatever they cost: what is too long even so is the business of the rollout's own limits.

    The engine prefills every segment anew. With ``keep`` below ``turns`` several exchanges leave at once, so that
    segments are longer: ``turns=8, keep=4`` opens a segment every five turns instead of every turn. ``keep_tokens``
    is the same for tokens.

    Attributes:
        turns: most past exchanges that the policy sees; 4 where neither limit is given.
        keep: how many remain when there are more; ``turns`` where None.
        max_tokens: most context tokens before a turn, prompt included.
        keep_tokens: size of the context after an overflow, prompt included; half of ``max_tokens`` where None.
    """

    turns: int | None = Field(default=None, ge=1)
    keep: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    keep_tokens: int | None = Field(default=None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _some_limit(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("turns") is None and given.get("max_tokens") is None:
            return {**given, "turns": _DEFAULT_TURNS}
        return given

    @model_validator(mode="after")
    def _keeps_at_most_all(self) -> SlidingWindow:
        for kept, limit in (("keep", "turns"), ("keep_tokens", "max_tokens")):
            wanted, most = getattr(self, kept), getattr(self, limit)
            if wanted is not None and most is None:
                raise ValueError(f"{kept}={wanted} has no effect without {limit}")
            if wanted is not None and wanted > most:
                raise ValueError(
                    f"{kept}={wanted} is more than {limit}={most}: a window cannot keep more than it holds"
                )
        return self

    def make(self, max_context_tokens: int | None = None) -> ContextStrategy:
        """A window that holds everything so far."""
        return _Window(self)


@dataclass(slots=True)
class _Window:
    settings: SlidingWindow
    first: int = 0  # number of the first exchange in the context

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
        limits, count = self.settings, len(exchanges)

        def context(first: int) -> Ids:
            return renderer.render_exchanges(prompt, exchanges[first:], tools=tools)

        first = self.first
        if limits.turns is not None and count - first > limits.turns:
            first = count - (limits.keep or limits.turns)
        step: Extend | Rewrite
        if first == self.first:
            step = AppendOnly().next(renderer, prompt, exchanges[first:], segment_ids, tools=tools)
        else:
            step = Rewrite(context(first))
        if limits.max_tokens is not None and length_after(segment_ids, step) > limits.max_tokens:
            room = limits.max_tokens // 2 if limits.keep_tokens is None else limits.keep_tokens
            numbers = range(first, count - 1)
            first += bisect_left(numbers, True, key=lambda number: len(context(number)) <= room)
            step = Rewrite(context(first))
        self.first = first
        return step
