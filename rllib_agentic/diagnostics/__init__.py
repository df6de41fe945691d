"""Seeing collapse before it happens: the echo trap, template collapse, and drift between engine and learner."""

from rllib_agentic.diagnostics.alarm import Alarm, Reaction, Verdict
from rllib_agentic.diagnostics.cross_sample import CrossSample, cross_sample
from rllib_agentic.diagnostics.drift import Drift, drift_signals
from rllib_agentic.diagnostics.echo_signals import echo_signals
from rllib_agentic.diagnostics.echo_trap import EchoTrap
from rllib_agentic.diagnostics.settings import DiagnosticsSettings
from rllib_agentic.diagnostics.template_collapse import TemplateCollapse, collapse_metrics

__all__ = [
    "Alarm",
    "CrossSample",
    "DiagnosticsSettings",
    "Drift",
    "EchoTrap",
    "Reaction",
    "TemplateCollapse",
    "Verdict",
    "collapse_metrics",
    "cross_sample",
    "drift_signals",
    "echo_signals",
]
