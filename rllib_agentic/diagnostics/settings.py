"""The YAML section ``diagnostics``."""

from __future__ import annotations

from pydantic import Field

from rllib_agentic.components import Settings
from rllib_agentic.diagnostics.drift import Drift
from rllib_agentic.diagnostics.echo_trap import EchoTrap
from rllib_agentic.diagnostics.template_collapse import TemplateCollapse


class DiagnosticsSettings(Settings):
    """Which collapses are watched for, and what an alarm does.

    Attributes:
        echo_trap: see :class:`~rllib_agentic.diagnostics.echo_trap.EchoTrap`; None for none. Costs nothing to speak of.
        template_collapse: see :class:`~rllib_agentic.diagnostics.template_collapse.TemplateCollapse`; measures only
            where ``every`` is set, because it costs forward passes.
        drift: see :class:`~rllib_agentic.diagnostics.drift.Drift`; None for none. Costs nothing to speak of.
        keep_every: iterations between two copies of the last healthy weights, where an alarm may go back to them.
    """

    echo_trap: EchoTrap | None = EchoTrap()
    template_collapse: TemplateCollapse | None = TemplateCollapse()
    drift: Drift | None = Drift()
    keep_every: int = Field(default=5, ge=1)

    @property
    def rolls_back(self) -> bool:
        """Whether any alarm may go back to earlier weights."""
        watched = (self.echo_trap, self.template_collapse, self.drift)
        return any(part is not None and part.on_alarm.action == "rollback" for part in watched)
