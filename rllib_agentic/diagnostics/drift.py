"""Drift: whether what is trained is what was sampled, by the policy that is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import Field

from rllib_agentic.components import Settings
from rllib_agentic.diagnostics.alarm import Alarm, Reaction, State, Verdict
from rllib_agentic.trajectory import Trajectory, rows_of
from rllib_agentic.trajectory.checksum import ENGINE_CHECKSUM, checksum_rows

_KIND = "drift"


def drift_signals(trajectories: Sequence[Trajectory], version: int, mismatch: Mapping[str, float]) -> dict[str, float]:
    """The signals of one iteration.

    Args:
        trajectories: all that were sampled; invalid ones are passed over.
        version: of the weights that are trained next.
        mismatch: what the learner found before its first step, learner minus engine logprobs a token: ``mean``,
            ``max`` (absolute), ``kl`` (estimator k3, nats a token) and ``ess`` (effective sample size, a fraction).
            Empty where it trained nothing.

    Returns:
        ``logprob_mean``, ``logprob_max``, ``kl`` and ``ess`` where the learner knows them; ``stale_token_share``: the
        share of sampled tokens whose version is older; ``stale_versions``: how many versions the oldest is behind; and
        ``reencoded_tokens``: sampled tokens of trajectories whose rows are not what the engine saw and sampled, by
        checksum. It is 0 unless something decoded and encoded again on the way.
    """
    valid = [t for t in trajectories if t.invalid is None]
    versions = [turn.policy_versions for t in valid for turn in t.turns]
    behind = version - np.concatenate([np.zeros(0, np.int64), *versions]).astype(np.int64)
    signals = {
        "stale_versions": float(behind.max(initial=0)),
        "stale_token_share": float((behind > 0).mean()) if len(behind) else 0.0,
        "reencoded_tokens": float(sum(t.num_action_tokens for t in valid if _differs(t))),
    }
    names = {"logprob_mean": "mean", "logprob_max": "max", "kl": "kl", "ess": "ess"}
    return signals | {name: mismatch[key] for name, key in names.items() if key in mismatch}


def _differs(trajectory: Trajectory) -> bool:
    expected = trajectory.metrics.get(ENGINE_CHECKSUM)
    return expected is not None and checksum_rows(rows_of(trajectory, [0.0] * len(trajectory.turns))) != expected


class Drift(Settings):
    """Watches the distance between the engine that samples and the learner that trains.

    Attributes:
        on_alarm: what happens then.
        max_kl: largest divergence of engine from learner, nats a token.
        min_ess: smallest effective sample size, as a fraction.
        max_stale_versions: how many versions behind a sampled token may be; 0 where sampling and training alternate.
        patience: iterations in a row beyond ``max_kl``, ``min_ess`` or ``max_stale_versions`` before it rings. A token
            that was encoded again rings at once.
    """

    on_alarm: Reaction = Reaction()
    max_kl: float = Field(default=0.02, gt=0)
    min_ess: float = Field(default=0.8, gt=0, lt=1)
    max_stale_versions: int = Field(default=0, ge=0)
    patience: int = Field(default=3, ge=1)

    def initial_state(self) -> State:
        """Nothing seen yet."""
        return {"beyond": {}, "rung": False}

    def observe(self, state: State, iteration: int, signals: Mapping[str, float]) -> Verdict:
        """Take in one iteration.

        Args:
            state: of the call before.
            iteration: its number.
            signals: of :func:`drift_signals`.
        """
        faults = {
            "kl": (signals.get("kl", 0.0) > self.max_kl, f"KL {signals.get('kl', 0.0):.3g} above {self.max_kl:g}"),
            "ess": (
                signals.get("ess", 1.0) < self.min_ess,
                f"effective sample size {signals.get('ess', 1.0):.3g} below {self.min_ess:g}",
            ),
            "stale_versions": (
                signals["stale_versions"] > self.max_stale_versions,
                f"tokens are up to {signals['stale_versions']:.0f} versions old, {self.max_stale_versions} are allowed",
            ),
        }
        before = state["beyond"]
        beyond = {name: before.get(name, 0) + 1 for name, (is_beyond, _) in faults.items() if is_beyond}
        words = [text for name, (_, text) in faults.items() if beyond.get(name, 0) >= self.patience]
        if signals["reencoded_tokens"] > 0:
            words.append(f"{signals['reencoded_tokens']:.0f} trained tokens are not what the engine sampled")
        alarm = None
        if words and not state["rung"]:
            since = f" for {self.patience} iterations" if self.patience > 1 and not signals["reencoded_tokens"] else ""
            alarm = Alarm(
                _KIND,
                iteration,
                f"drift: engine and learner disagree{since} (iteration {iteration}): {'; '.join(words)}",
                dict(signals),
            )
        return Verdict({"beyond": beyond, "rung": bool(words)}, dict(signals), alarm, healthy=not words)
