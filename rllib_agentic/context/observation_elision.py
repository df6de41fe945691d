"""Observation elision: old observations are shortened; what the agent said stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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


class ObservationElision(ContextSettings):
    """Keeps the last observations whole, and shortens those before them; a new segment begins where one is shortened.

    The prompt stays whole. An observation whose stand-in would be no shorter stays as it is.

    Attributes:
        turns: observations that stay whole, the newest ones.
        every: how many are shortened at once; more of them make longer segments, which the engine prefills less.
        max_tokens: shorten only once the context would be longer; None shortens by turns alone.
        max_chars: characters that remain of a shortened observation, from its beginning.
        mark: what stands for the rest, such as ``...``; where None, how many characters were left out.

    Example:
        >>> ObservationElision(max_chars=8).shorten(Message("user", "You see a door, a key and a very long corridor."))
        Message(role='user', content='You see [39 more characters left out]', ...)
    """

    turns: int = Field(default=2, ge=1)
    every: int = Field(default=1, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_chars: int = Field(default=0, ge=0)
    mark: str | None = None

    @model_validator(mode="after")
    def _one_rhythm(self) -> ObservationElision:
        if self.max_tokens is not None and self.every != 1:
            raise ValueError("'every' has no effect with 'max_tokens', which shortens all older observations at once")
        return self

    def make(self, max_context_tokens: int | None = None) -> ContextStrategy:
        """A context in which nothing is shortened yet."""
        return _Elision(self)

    def shorten(self, message: Message) -> Message:
        """The message with its stand-in for content."""
        left_out = len(message.content) - self.max_chars
        more = "more " if self.max_chars else ""
        mark = f"[{left_out} {more}characters left out]" if self.mark is None else self.mark
        short = f"{message.content[: self.max_chars]}{mark}"
        return replace(message, content=short) if len(short) < len(message.content) else message


@dataclass(slots=True)
class _Elision:
    settings: ObservationElision
    shortened: int = 0  # how many exchanges, from the first one

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
        limits = self.settings
        old = max(0, len(exchanges) - limits.turns)
        visible = self._visible(exchanges)
        step = AppendOnly().next(renderer, prompt, visible, segment_ids, tools=tools)
        if limits.max_tokens is None:
            due = old // limits.every * limits.every
        else:
            due = old if length_after(segment_ids, step) > limits.max_tokens else self.shortened
        if due <= self.shortened:
            return step
        self.shortened = due
        now = self._visible(exchanges)
        if now == visible:  # all of it was short already
            return step
        return Rewrite(renderer.render_exchanges(prompt, now, tools=tools))

    def _visible(self, exchanges: Sequence[Exchange]) -> list[Exchange]:
        return [
            replace(exchange, observation=tuple(self.settings.shorten(m) for m in exchange.observation))
            if number < self.shortened
            else exchange
            for number, exchange in enumerate(exchanges)
        ]
