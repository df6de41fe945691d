"""The echo trap: rewards within groups become equal, then the policy loses its entropy, then the gradient spikes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field

from rllib_agentic.components import Settings
from rllib_agentic.diagnostics.alarm import Alarm, Reaction, State, Verdict
from rllib_agentic.diagnostics.trend import level, slope

_KIND = "echo_trap"
_FALLING = ("reward_spread", "entropy")
_GAINS = ("reward_mean", "success_rate")
_WORDS = {
    "reward_spread": "the spread of rewards within groups",
    "entropy": "the token entropy",
    "reward_mean": "mean reward",
    "success_rate": "success",
}
_MOST_CALM = 20
_RECOVERED = 1.25


class EchoTrap(Settings):
    """Watches for the collapse that RAGEN (arXiv:2504.20073, section 4) calls the echo trap.

    A policy that has fallen into one way of answering earns the same in every member of a group. The order in which
    that shows is: the spread of rewards within groups falls, then the token entropy, then the gradient norm spikes. A
    policy that has *learned* its tasks loses spread and entropy too. The difference is what it got for that: reward or
    success has risen since the spread was largest, or success has risen by a share of all that was missing (outcomes
    spread most half-way, so the largest spread may come when much is learned already), and is at its best. In the trap
    neither has.

    A signal has *fallen* when its mean over ``window`` iterations is below a share of the largest such mean so far; it
    is up again at 1.25 times that share. The gradient *spikes* when it is ``spike`` times the median of the (at most
    20) iterations before the spread fell.

    Attributes:
        on_alarm: what happens then.
        ring_at: ``fall`` rings when spread and entropy have fallen and nothing was got for it, and once more at the
            spike; ``spike`` rings only when the pattern is complete.
        window: iterations that a level is the mean of; nothing rings before there are twice as many.
        spread_share: spread below this share of its largest level has fallen.
        entropy_share: the same for the entropy.
        spike: how many times its calm median the gradient norm must reach.
        reward_tolerance: a change of the reward counts when it is larger than this, in units of the largest spread, and
            two standard errors beside (as the reward's steps from iteration to iteration show them); a change of the
            success rate when it is larger than this by itself, and its two standard errors.
        success_share: a success rate that has risen by this share of what was missing at its lowest is something got.
        trend_window: iterations that trends are fitted to.
    """

    on_alarm: Reaction = Reaction()
    ring_at: Literal["fall", "spike"] = "fall"
    window: int = Field(default=5, ge=1)
    spread_share: float = Field(default=0.5, gt=0, lt=1)
    entropy_share: float = Field(default=0.5, gt=0, lt=1)
    spike: float = Field(default=3.0, gt=1)
    reward_tolerance: float = Field(default=0.1, ge=0)
    success_share: float = Field(default=0.5, gt=0, le=1)
    trend_window: int = Field(default=10, ge=2)

    def initial_state(self) -> State:
        """Nothing seen yet."""
        return {
            "seen": 0, "recent": {}, "peak": {}, "fallen": {}, "calm": [],
            "best": {}, "lowest": {}, "at_peak": {}, "rung": 0,
        }  # fmt: skip

    def observe(self, state: State, iteration: int, signals: Mapping[str, float]) -> Verdict:
        """Take in one iteration.

        Args:
            state: of the call before.
            iteration: its number.
            signals: of :func:`~rllib_agentic.diagnostics.echo_signals.echo_signals`.
        """
        recent = self._remember(state["recent"], signals)
        seen = state["seen"] + 1
        ready = seen >= 2 * self.window
        peak, fallen = dict(state["peak"]), dict(state["fallen"])
        gains = {name: value for name in _GAINS if (value := level(recent.get(name, []), self.window)) is not None}
        best = {name: max(value, state["best"].get(name, value)) for name, value in gains.items()}
        lowest = {name: min(value, state["lowest"].get(name, value)) for name, value in gains.items()}
        at_peak = dict(state["at_peak"])
        for name, share in zip(_FALLING, (self.spread_share, self.entropy_share), strict=True):
            now = level(recent.get(name, []), self.window)
            if now is None:
                continue
            if now >= peak.get(name, 0.0):
                peak[name] = now
                at_peak = dict(gains) if name == "reward_spread" else at_peak
            if ready and now < share * peak[name]:
                fallen.setdefault(name, iteration)
            elif now >= _RECOVERED * share * peak[name]:
                fallen.pop(name, None)
                fallen.pop("grad_norm", None)
        calm = self._calm(state["calm"], fallen, signals)
        unpaid = bool(fallen) and not any(
            now >= best[name] - (margin := self._margin(name, recent[name], peak))
            and now > self._wanted(name, at_peak[name], lowest[name], margin)
            for name, now in gains.items()
            if name in at_peak
        )
        trapped = unpaid and all(name in fallen for name in _FALLING)
        if trapped and self._spikes(calm, signals):
            fallen.setdefault("grad_norm", iteration)
        stage = sum(name in fallen for name in _FALLING) + (trapped and "grad_norm" in fallen)
        due = 0 if not trapped else 2 if stage == 3 else 1 if self.ring_at == "fall" else 0
        rung = due if due > state["rung"] else state["rung"] if trapped else 0
        rings = due > state["rung"]
        metrics = {name: value for name, value in signals.items()}
        metrics |= {f"{name}_trend": slope(values[-self.trend_window :]) for name, values in recent.items()}
        metrics["stage"] = float(stage)
        alarm = Alarm(_KIND, iteration, _message(fallen, peak, recent, calm, self.window), metrics) if rings else None
        after = {
            "seen": seen, "recent": recent, "peak": peak, "fallen": fallen, "calm": calm,
            "best": best, "lowest": lowest, "at_peak": at_peak, "rung": rung,
        }  # fmt: skip
        return Verdict(after, metrics, alarm, healthy=not unpaid)

    def _remember(self, recent: Mapping[str, Sequence[float]], signals: Mapping[str, float]) -> dict[str, list[float]]:
        keep = max(self.window, self.trend_window)
        names = [*recent, *(name for name in signals if name not in recent)]
        new: dict[str, list[float]] = {}
        for name in names:
            new[name] = [*recent.get(name, []), *([signals[name]] if name in signals else [])][-keep:]
        return new

    def _calm(self, calm: Sequence[float], fallen: Mapping[str, int], signals: Mapping[str, float]) -> list[float]:
        if "reward_spread" in fallen or signals.get("grad_norm", 0.0) <= 0.0:
            return list(calm)
        return [*calm, signals["grad_norm"]][-_MOST_CALM:]

    def _spikes(self, calm: Sequence[float], signals: Mapping[str, float]) -> bool:
        return bool(calm) and signals.get("grad_norm", 0.0) > self.spike * statistics.median(calm)

    def _margin(self, name: str, values: Sequence[float], peak: Mapping[str, float]) -> float:
        """How large a change of a gain must be to count."""
        unit = peak.get("reward_spread", 0.0) if name == "reward_mean" else 1.0
        steps = [(b - a) ** 2 for a, b in pairwise(values)]
        noise = math.sqrt(math.fsum(steps) / (2 * len(steps))) if steps else 0.0
        return self.reward_tolerance * unit + 2 * noise / math.sqrt(self.window)

    def _wanted(self, name: str, at_peak: float, lowest: float, margin: float) -> float:
        """The level above which a gain is worth the spread that it cost."""
        risen = at_peak + margin
        return min(risen, lowest + self.success_share * (1 - lowest)) if name == "success_rate" else risen


def _message(
    fallen: Mapping[str, int],
    peak: Mapping[str, float],
    recent: Mapping[str, Sequence[float]],
    calm: Sequence[float],
    window: int,
) -> str:
    parts: list[tuple[int, str]] = []
    for name in _FALLING:
        now: Any = level(recent[name], window)
        parts.append((fallen[name], f"{_WORDS[name]} fell (iteration {fallen[name]}, {peak[name]:.3g} to {now:.3g})"))
    parts.sort(key=lambda part: part[0])
    text = ", then ".join(words for _, words in parts)
    if "grad_norm" in fallen:
        times = recent["grad_norm"][-1] / statistics.median(calm)
        text += f", then the gradient spiked (iteration {fallen['grad_norm']}, {times:.1f} times its calm median)"
    got = ", ".join(f"{_WORDS[name]} {level(recent[name], window):.3g}" for name in _GAINS if name in recent)
    return f"echo trap: {text}, and nothing was got for it ({got})"
