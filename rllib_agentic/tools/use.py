"""How the tools of an environment are used: the part of its arguments that YAML sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from rllib_agentic.components import Settings
from rllib_agentic.tools.calling import CALLING, CallFormat, Hermes


class ToolUse(Settings):
    """Call format, budgets, and how outputs come back. ``docs/tools.md`` has the rules with examples.

    Attributes:
        calling: the call format: a type name, or a mapping with ``type`` and its settings.
        observation: ``message``: outputs are a new message, the agent answers in a new turn of the chat. ``continue``:
            generation pauses at the end of a call, the output is appended to the agent's own turn, and generation goes
            on from there (ToRL).
        order: whether the calls of one turn run one after the other, or side by side.
        calls_per_turn: most calls that run in one turn; None: no such limit. With 1, generation stops at a call's end.
        calls_per_episode: most calls that run in one episode; None: no such limit.
        call_timeout_s: a call that takes longer is given up, and the agent is told so.
        turn_timeout_s: once the calls of a turn have taken this long, no more of them run. Keep it below the
            environment's ``call_timeout_s``, 60 by default: a turn that takes longer counts as its failure.
        episode_timeout_s: once the calls of an episode have taken this long, no more run; None: no such limit.
        output_bytes: a longer output is cut to its head and tail.
        spent: what happens to calls when the episode's budget is used up: an ``error`` output, or with
            ``observation: continue`` ``ignore``: the agent simply goes on writing.
        without_call: what a turn is that holds neither a call nor a marked answer: the ``answer`` itself, or a lapse of
            which the agent is to ``remind`` itself.
        in_reasoning: what calls within the reasoning are: a ``draft`` that never runs, or calls that ``run``.
        think_start: what opens the reasoning.
        think_end: what closes the reasoning.
        starts_in_reasoning: whether the prompt has opened the reasoning already, as some chat templates do.
    """

    calling: CallFormat = Field(default_factory=Hermes)
    observation: Literal["message", "continue"] = "message"
    order: Literal["in_order", "side_by_side"] = "in_order"
    calls_per_turn: int | None = Field(default=None, ge=1)
    calls_per_episode: int | None = Field(default=None, ge=0)
    call_timeout_s: float = Field(default=30.0, gt=0)
    turn_timeout_s: float | None = Field(default=45.0, gt=0)
    episode_timeout_s: float | None = Field(default=None, gt=0)
    output_bytes: int = Field(default=8192, ge=1)
    spent: Literal["error", "ignore"] = "error"
    without_call: Literal["answer", "remind"] = "answer"
    in_reasoning: Literal["draft", "run"] = "draft"
    think_start: str = Field(default="<think>", min_length=1)
    think_end: str = Field(default="</think>", min_length=1)
    starts_in_reasoning: bool = False

    @field_validator("calling", mode="before")
    @classmethod
    def _parse_calling(cls, given: Any) -> CallFormat:
        return CALLING.parse(given, "calling") if isinstance(given, str | Mapping) else given

    @model_validator(mode="after")
    def _fits(self) -> ToolUse:
        if self.spent == "ignore" and self.observation != "continue":
            raise ValueError("spent 'ignore' needs observation 'continue': a message has to say something")
        if self.observation == "continue" and not self.calling.stop_strings(["any"]):
            raise ValueError(
                f"observation 'continue' needs a call format with a stop string; {type(self.calling).__name__} has none"
            )
        return self

    def stop_strings(self, names: Sequence[str]) -> tuple[str, ...]:
        """Where generation pauses: at a call's end, unless a turn may hold several calls.

        Args:
            names: the tools' names.
        """
        one_call = self.observation == "continue" or self.calls_per_turn == 1
        return self.calling.stop_strings(names) if one_call else ()
