"""Reading an episode piece by piece: a piece ends where the agent ends its turn, or where generation pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rllib_agentic.tools.calling import Reading
from rllib_agentic.tools.calling.scan import read_turn
from rllib_agentic.tools.use import ToolUse


@dataclass(frozen=True, slots=True)
class Heard:
    """One piece, read.

    Attributes:
        reading: what is in it; drafts that an earlier piece has reported are not in its count.
        paused: whether generation paused at its end, so that the turn can go on.
    """

    reading: Reading
    paused: bool


class TurnReader:
    """Remembers between two pieces of one turn what can only be understood together.

    A pause may fall into the reasoning (a draft of a call ends there), or into a call (its text holds the stop string).
    Such a piece is read once more with the one that follows.

    Args:
        use: call format and reasoning.
        names: the tools' names.
    """

    def __init__(self, use: ToolUse, names: Sequence[str]) -> None:
        self._use = use
        self._names = tuple(names)
        self._stops = use.stop_strings(names)
        self._unread = ""
        self._reported_drafts = 0
        self._starts_in_reasoning = use.starts_in_reasoning

    def read(self, piece: str) -> Heard:
        """Read the next piece."""
        use = self._use
        text = self._unread + piece
        reading = read_turn(
            text,
            lambda text, at: use.calling.find(text, at, self._names),
            think_start=use.think_start,
            think_end=use.think_end,
            starts_in_reasoning=self._starts_in_reasoning,
            in_reasoning=use.in_reasoning,
        )
        heard = Heard(
            replace(reading, drafts=max(0, reading.drafts - self._reported_drafts)), piece.endswith(self._stops)
        )
        self._unread, self._reported_drafts = "", 0
        if heard.paused and not reading.calls and (reading.cut or reading.reasoning_open):
            self._unread, self._reported_drafts = text, reading.drafts
        elif heard.paused and (not reading.calls or use.observation == "continue"):
            self._starts_in_reasoning = reading.reasoning_open
        else:
            self._starts_in_reasoning = use.starts_in_reasoning
        return heard
