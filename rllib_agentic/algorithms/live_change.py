"""Settings that change while a run goes on: which ones may, and what the run reads then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rllib_agentic.algorithms.sections import Sections
from rllib_agentic.diagnostics import DiagnosticsSettings
from rllib_agentic.errors import InputError

if TYPE_CHECKING:
    from rllib_agentic.algorithms.config import AgenticConfig

_MAY_CHANGE = (
    "lr", "grad_clip", "num_epochs", "minibatch_size", "rollout", "rewards", "filters", "refill", "advantages", "loss",
    "learner",
)  # fmt: skip
_BUILT_ONCE = ("weight_decay", "betas", "eps", "max_logits", "dtype")


def changed_sections(config: AgenticConfig, changes: Sequence[Mapping[str, Any]], where: str = "change") -> Sections:
    """The sections of a config with changes laid over it, one after the other.

    Raises:
        InputError: a change is wrong in itself, or touches what is built only once.
    """
    faults = [
        f"{where}.{key}: cannot change while a run goes on; what can: {', '.join(_MAY_CHANGE)}"
        for change in changes
        for key in change
        if key not in _MAY_CHANGE
    ]
    if faults:
        raise InputError("\n".join(faults))
    before = config.sections()
    after_config = config.copy(copy_frozen=False)
    try:
        for change in changes:
            after_config.update_from_dict(change)
        after = after_config.sections()
    except InputError as error:
        raise InputError("\n".join(f"{where}: {line}" for line in str(error).splitlines())) from None
    faults = [
        f"{where}.learner.{name}: cannot change while a run goes on"
        for name in _BUILT_ONCE
        if getattr(before.learner, name) != getattr(after.learner, name)
    ]
    if after.rollout.temperature != before.rollout.temperature:
        faults.append(f"{where}.rollout.temperature: cannot change while a run goes on: the learner scores by it")
    if (after.rollout.max_staleness > 0) != (before.rollout.max_staleness > 0):
        faults.append(f"{where}.rollout.max_staleness: cannot begin or end to be 0 while a run goes on")
    if after.needs_critic != before.needs_critic:
        faults.append(f"{where}.advantages: a critic cannot come or go while a run goes on")
    if after.learner.kl.coefficient > 0 and before.learner.kl.coefficient == 0:
        faults.append(f"{where}.learner.kl.coefficient: there is no reference policy, because the run began with 0")
    if faults:
        raise InputError("\n".join(faults))
    return after


def check_reactions(config: AgenticConfig, diagnostics: DiagnosticsSettings) -> None:
    """Find out at the start whether what alarms would change can be changed.

    Raises:
        InputError: it cannot.
    """
    for name in ("echo_trap", "template_collapse", "drift"):
        watch = getattr(diagnostics, name)
        if watch is not None and watch.on_alarm.change:
            changed_sections(config, [watch.on_alarm.change], f"config.diagnostics.{name}.on_alarm.change")
