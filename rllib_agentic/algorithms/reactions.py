"""What a run does when an alarm rings: warn, stop, go back, go on under other settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ray.rllib.core.learner.learner_group import LearnerGroup

from rllib_agentic.algorithms.events import EventLog
from rllib_agentic.algorithms.last_good import LastGood
from rllib_agentic.algorithms.live_change import changed_sections
from rllib_agentic.algorithms.monitor import Monitor
from rllib_agentic.algorithms.sections import Sections
from rllib_agentic.diagnostics import Alarm

if TYPE_CHECKING:
    from rllib_agentic.algorithms.config import AgenticConfig


class Outcome(NamedTuple):
    """What follows for the algorithm.

    Attributes:
        sections: what it reads from now on, where settings changed.
        went_back: whether the learners hold other weights now, which must be published.
        stop: the alarm that ends the run, or None.
    """

    sections: Sections | None = None
    went_back: bool = False
    stop: str | None = None


class Reactions:
    """Acts on alarms, and remembers which settings it changed.

    Args:
        config: what the run began with.
        monitor: whose alarms these are.
        last_good: the copy to go back to.
        learners: who go back, and train under changed settings.
    """

    def __init__(self, config: AgenticConfig, monitor: Monitor, last_good: LastGood, learners: LearnerGroup) -> None:
        self._config = config
        self._monitor = monitor
        self._last_good = last_good
        self._learners = learners
        self._changes: list[Mapping[str, Any]] = []

    def act(self, alarms: Sequence[Alarm], *, version: int, events: EventLog) -> Outcome:
        """Do what the alarms' settings say.

        Args:
            alarms: of one iteration.
            version: the newest version of the weights so far.
            events: takes a line an alarm.
        """
        sections, went_back, stop = None, False, None
        for alarm in alarms:
            reaction = self._monitor.react(alarm)
            done = ""
            if reaction.action == "stop":
                stop, done = alarm.message, "; the run stops"
            if reaction.action == "rollback" and not went_back:
                if self._last_good.exists:
                    self._last_good.restore(self._learners, version=version + 1)
                    self._monitor.forget()
                    went_back, done = True, "; back to the last healthy weights"
                else:
                    done = "; there are no healthy weights to go back to yet"
            if reaction.change:
                self._changes.append(reaction.change)
                sections = self._apply()
                done += f"; changed: {dict(reaction.change)}"
            events.add(alarm.kind, alarm.iteration, alarm.message + done, warn=True)
        return Outcome(sections, went_back, stop)

    def state(self) -> list[dict[str, Any]]:
        """What a checkpoint keeps."""
        return [dict(change) for change in self._changes]

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> Sections | None:
        """Change again what had been changed when the state was taken."""
        changed, self._changes = bool(self._changes or state), list(state)
        return self._apply() if changed else None

    def _apply(self) -> Sections:
        sections = changed_sections(self._config, self._changes)
        setup = sections.learner_setup()
        self._learners.foreach_learner(lambda learner: learner.change_setup(setup))
        return sections
