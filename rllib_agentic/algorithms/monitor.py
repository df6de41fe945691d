"""The diagnostics of a run: when each one looks, what it remembers, and what its alarms lead to."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ray.rllib.core.learner.learner_group import LearnerGroup

from rllib_agentic.diagnostics import (
    Alarm,
    DiagnosticsSettings,
    Reaction,
    collapse_metrics,
    cross_sample,
    drift_signals,
    echo_signals,
)
from rllib_agentic.diagnostics.alarm import Verdict
from rllib_agentic.rollout.seeds import seed_of
from rllib_agentic.trajectory import Trajectory

_MISMATCH = "mismatch_"


class Monitor:
    """Runs the diagnostics of one algorithm.

    Args:
        settings: the section ``diagnostics``.
        seed: the run's.
        on_policy: whether all that is trained was sampled by the weights of the same iteration; where not, engine and
            learner may differ.

    Attributes:
        healthy: whether the last iteration looked worth going back to.
    """

    def __init__(self, settings: DiagnosticsSettings, seed: int, *, on_policy: bool = True) -> None:
        self._settings = settings
        self._seed = seed
        self._on_policy = on_policy
        self._watches: dict[str, Any] = {
            name: part
            for name in ("echo_trap", "template_collapse", "drift")
            if (part := getattr(settings, name)) is not None
        }
        self._states = {name: part.initial_state() for name, part in self._watches.items()}
        self._reactions: dict[str, int] = {}
        self._alarms = 0
        self._measured: dict[str, float] = {}
        self.healthy = True

    def before_update(self, iteration: int, groups: Sequence[Sequence[Trajectory]], learners: LearnerGroup) -> None:
        """Measure what must be measured while the policy is still the one that sampled."""
        self._measured = {}
        template = self._settings.template_collapse
        if template is None or not template.is_due(iteration):
            return
        started = time.perf_counter()
        sample = cross_sample(
            groups,
            samples=template.samples,
            max_tokens=template.max_tokens,
            turn=template.turn,
            seed=seed_of(self._seed, "cross_sample", iteration),
        )
        if sample is None:
            return
        results = learners.foreach_learner(lambda learner: learner.cross_scores(sample))
        failed = [r for r in results if not r.ok]
        if failed:
            raise failed[0].get()
        by_prompt = {number: scores for r in results for number, scores in r.get().items()}
        scores_NK = np.stack([by_prompt[k] for k in range(len(sample.prompts))], axis=1)
        self._measured = collapse_metrics(np.minimum(scores_NK, 0.0), sample.own) | {
            "scored_tokens": float(sample.tokens),
            "seconds": time.perf_counter() - started,
        }

    def after_update(
        self, iteration: int, trajectories: Sequence[Trajectory], version: int, learned: Mapping[str, float]
    ) -> tuple[list[Alarm], dict[str, float]]:
        """Look at the whole iteration.

        Args:
            iteration: its number.
            trajectories: all that were sampled, with raw rewards.
            version: of the weights that the iteration sampled from and trained.
            learned: what the learners reported; without ``grad_norm`` where nothing was trained.

        Returns:
            What rings, and the metrics, under the diagnostics' names.
        """
        compared = learned if self._on_policy else {}
        mismatch = {k.removeprefix(_MISMATCH): v for k, v in compared.items() if k.startswith(_MISMATCH)}
        verdicts: dict[str, Verdict] = {}
        if "echo_trap" in self._watches:
            signals = echo_signals(trajectories, learned.get("grad_norm"))
            verdicts["echo_trap"] = self._observe("echo_trap", iteration, signals)
        if self._measured:
            verdicts["template_collapse"] = self._observe("template_collapse", iteration, self._measured)
        if "drift" in self._watches:
            verdicts["drift"] = self._observe("drift", iteration, drift_signals(trajectories, version, mismatch))
        metrics = {f"{kind}/{name}": value for kind, v in verdicts.items() for name, value in v.metrics.items()}
        alarms = [v.alarm for v in verdicts.values() if v.alarm is not None]
        self._alarms += len(alarms)
        self.healthy = all(v.healthy for v in verdicts.values())
        return alarms, metrics | {"alarms": float(self._alarms)}

    def keeps_now(self, iteration: int) -> bool:
        """Whether this iteration's weights are to be kept as the last good ones."""
        return self._settings.rolls_back and self.healthy and iteration % self._settings.keep_every == 0

    def react(self, alarm: Alarm) -> Reaction:
        """What an alarm leads to now: what its settings say, or ``stop`` once that was done often enough."""
        reaction: Reaction = self._watches[alarm.kind].on_alarm
        if reaction.action == "warn":
            return reaction
        done = self._reactions[alarm.kind] = self._reactions.get(alarm.kind, 0) + 1
        return reaction if done <= reaction.at_most else Reaction(action="stop")

    def forget(self) -> None:
        """Watch anew: after going back, what was seen belongs to other weights."""
        self._states = {name: part.initial_state() for name, part in self._watches.items()}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"watches": dict(self._states), "reactions": dict(self._reactions), "alarms": self._alarms}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was taken."""
        self._states |= {name: part for name, part in state["watches"].items() if name in self._watches}
        self._reactions = dict(state["reactions"])
        self._alarms = int(state["alarms"])

    def _observe(self, name: str, iteration: int, signals: Mapping[str, float]) -> Verdict:
        verdict: Verdict = self._watches[name].observe(self._states[name], iteration, signals)
        self._states[name] = verdict.state
        return verdict


def nested(flat: Mapping[str, float]) -> dict[str, Any]:
    """Metrics as results hold them: a mapping a name before the first slash.

    Example:
        >>> nested({"drift/kl": 0.1, "alarms": 0.0})
        {'drift': {'kl': 0.1}, 'alarms': 0.0}
    """
    result: dict[str, Any] = {}
    for name, value in flat.items():
        kind, _, rest = name.partition("/")
        if rest:
            result.setdefault(kind, {})[rest] = value
        else:
            result[name] = value
    return result
