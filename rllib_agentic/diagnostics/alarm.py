"""Alarms: what a diagnostic rings about, and what the run does then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from rllib_agentic.components import Settings

State = Mapping[str, Any]
"""What a diagnostic remembers between iterations: plain numbers, lists and texts, so that it goes into checkpoints."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One fault that a diagnostic found.

    Attributes:
        kind: the diagnostic's name, such as ``echo_trap``.
        iteration: when it rang.
        message: the pattern, in one sentence with its numbers and iterations.
        metrics: the numbers that it was judged by.
    """

    kind: str
    iteration: int
    message: str
    metrics: Mapping[str, float] = field(default_factory=dict)


class Verdict(NamedTuple):
    """What a diagnostic says of one iteration.

    Attributes:
        state: hand it to the next call.
        metrics: finite numbers for the results.
        alarm: what rings, or None.
        healthy: whether nothing points to a fault, so that this iteration's weights are worth going back to.
    """

    state: State
    metrics: dict[str, float]
    alarm: Alarm | None = None
    healthy: bool = True


class Reaction(Settings):
    """What happens when an alarm rings. In YAML just a word, or a mapping.

    =============  ==================================================================================
    action         the run
    =============  ==================================================================================
    ``warn``       says so and goes on
    ``stop``       ends, with the alarm as the reason
    ``rollback``   goes back to the last weights and optimizer state that looked healthy, and goes on
                   with new samples; with ``change`` under other settings too
    ``change``     goes on under other settings
    =============  ==================================================================================

    Example:
        >>> from rllib_agentic.components import parse_settings
        >>> parse_settings(Reaction, {"action": "change", "change": {"lr": 1e-4}}, "on_alarm").action
        'change'

    Attributes:
        action: see above.
        change: configuration laid over the run's, for ``change`` and ``rollback``.
        at_most: how often it is done; the alarm after that stops the run. ``warn`` warns without end.
    """

    action: Literal["warn", "stop", "rollback", "change"] = "warn"
    change: dict[str, Any] = Field(default_factory=dict)
    at_most: int = Field(default=3, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        return {"action": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _change_fits(self) -> Reaction:
        if self.action == "change" and not self.change:
            raise ValueError("action 'change' needs 'change', the configuration to lay over, such as {lr: 1.0e-4}")
        if self.change and self.action not in ("change", "rollback"):
            raise ValueError(f"'change' has no effect with action {self.action!r}; use 'change' or 'rollback'")
        return self
