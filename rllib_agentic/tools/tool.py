"""A tool: what an agent can call, and what a call gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from rllib_agentic.errors import AgenticError


class ToolError(AgenticError):
    """The call failed for a reason that the agent is to hear of: its message becomes the observation.

    Raise it for what the agent did wrong or could do otherwise: no such row, a query that does not parse. Whatever else
    a tool raises ends the episode as invalid: a bug or a failing service is no evidence about the policy.
    """


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What one call gave.

    Attributes:
        text: what the agent reads.
        reward: added to the turn's reward; None where the tool has no opinion.
        metadata: JSON-able, for the environment and the log, never shown to the agent. Numbers under ``"metrics"`` are
            summed into the turn's metrics.
    """

    text: str
    reward: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Tool(Protocol):
    """Something that an agent can call by name.

    Attributes:
        name: how the agent calls it; unique within an environment.
        description: what it does, for the agent.
        parameters: JSON-Schema of the arguments, of type ``object``.
    """

    @property
    def name(self) -> str:
        """See above."""
        ...

    @property
    def description(self) -> str:
        """See above."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """See above."""
        ...

    async def execute(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run one call.

        Args:
            arguments: valid under ``parameters``; the caller has checked that.

        Raises:
            ToolError: the agent is to hear of it.
            Exception: anything else ends the episode as invalid.
        """
        ...
