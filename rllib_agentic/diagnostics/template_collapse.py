"""Template collapse: answers stay diverse, but no longer depend on the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rllib_agentic.components import Settings
from rllib_agentic.diagnostics.alarm import Alarm, Reaction, State, Verdict
from rllib_agentic.diagnostics.trend import level

Floats = npt.NDArray[np.float64]
_KIND = "template_collapse"
_RETRIEVAL = (1, 2, 4, 8)
_EPSILON = 1e-3


def collapse_metrics(logprobs_NK: Floats, own_N: npt.NDArray[np.int64]) -> dict[str, float]:
    """Entropy, mutual information and retrieval from cross scores (RAGEN-2, arXiv:2604.06268).

    With ``l_k(z)`` the log-probability of a response under prompt k, and ``w_k`` the share of the responses that came
    from prompt k (identical prompts are one)::

        matched_i  = l_own(i)(z_i)
        marginal_i = log sum_k w_k exp(l_k(z_i))
        H(Z|X)     = -mean matched          I(X;Z) = mean(matched - marginal) <= H(X) = -sum_k w_k log w_k
        z-score    = mean((matched - marginal) / (std(marginal) + 0.001))

    Means are over responses; the standard deviation has divisor N. All in nats.

    Args:
        logprobs_NK: of each response under each distinct prompt.
        own_N: the prompt that each response was sampled under.

    Returns:
        ``conditional_entropy``, ``mutual_information``, ``mutual_information_max`` (H(X)), ``mi_z_score``, and
        ``retrieval_at_k`` for k = 1, 2, 4, 8 below the number of prompts: the share of responses whose own prompt is
        among the k that give them the highest probability, ties broken at random (in expectation).

    Raises:
        ValueError: shapes do not fit, or a log-probability is not finite or above 0.

    Example:
        >>> sure = np.log([[0.9, 0.1], [0.1, 0.9]])
        >>> found = collapse_metrics(sure, np.array([0, 1]))
        >>> round(found["mutual_information"], 4) == round(float(np.log(0.9 / 0.5)), 4), found["retrieval_at_1"]
        (True, 1.0)
    """
    responses, prompts = logprobs_NK.shape
    if own_N.shape != (responses,) or not responses or own_N.min() < 0 or own_N.max() >= prompts:
        raise ValueError(f"collapse_metrics: scores {logprobs_NK.shape} do not fit prompts of shape {own_N.shape}")
    if not np.isfinite(logprobs_NK).all() or (logprobs_NK > 1e-6).any():
        raise ValueError("collapse_metrics: log-probabilities must be finite and at most 0")
    weights_K = np.bincount(own_N, minlength=prompts) / responses
    asked = weights_K > 0
    matched_N = logprobs_NK[np.arange(responses), own_N]
    marginal_N = np.logaddexp.reduce(logprobs_NK[:, asked] + np.log(weights_K[asked]), axis=1)
    gain_N = matched_N - marginal_N
    metrics = {
        "conditional_entropy": -float(matched_N.mean()),
        "mutual_information": float(gain_N.mean()),
        "mutual_information_max": -float((weights_K[asked] * np.log(weights_K[asked])).sum()),
        "mi_z_score": float((gain_N / (marginal_N.std() + _EPSILON)).mean()),
    }
    better_N = (logprobs_NK > matched_N[:, None]).sum(axis=1)
    tied_N = (logprobs_NK == matched_N[:, None]).sum(axis=1)
    for k in _RETRIEVAL:
        if k < prompts:
            metrics[f"retrieval_at_{k}"] = float(np.clip((k - better_N) / tied_N, 0, 1).mean())
    return metrics


class TemplateCollapse(Settings):
    """Watches whether responses still depend on their prompts (RAGEN-2, arXiv:2604.06268).

    Entropy alone does not show it: a policy that answers every prompt from one stock of phrases may keep its entropy
    and even its reward. So this measures the mutual information between prompt and response, by scoring each of a
    sample of responses under every prompt of the sample.

    **Cost.** N responses and K distinct prompts are N x K forward passes without gradient over prompt and response, on
    the learners. The sample is cut so that they are at most ``max_tokens`` tokens; the metrics ``scored_tokens`` and
    ``seconds`` say what it was.

    **Alarm.** For ``patience`` measurements in a row, the mean mutual information of the last ``window`` measurements
    is below ``share`` of its largest, which was at least ``floor`` nats, while the mean entropy is not below
    ``entropy_share`` of its own largest (where the entropy falls too, it is another fault: see the echo trap).

    Attributes:
        on_alarm: what happens then.
        every: iterations between measurements, the first of them one; None measures never.
        samples: responses of one measurement, at most; whole groups give one member after the other, so that there are
            as many different prompts as possible.
        max_tokens: budget of one measurement.
        turn: which turn of a trajectory is the response: the ``first``, or a ``random`` one.
        decay: of the moving average of the z-score.
        window: measurements that are averaged for the alarm.
        share: see above.
        entropy_share: see above.
        floor: see above, in nats.
        patience: see above.
    """

    on_alarm: Reaction = Reaction()
    every: int | None = Field(default=None, ge=1)
    samples: int = Field(default=64, ge=2)
    max_tokens: int = Field(default=1_000_000, ge=1)
    turn: Literal["first", "random"] = "first"
    decay: float = Field(default=0.9, ge=0, lt=1)
    window: int = Field(default=3, ge=1)
    share: float = Field(default=0.3, gt=0, lt=1)
    entropy_share: float = Field(default=0.75, gt=0, lt=1)
    floor: float = Field(default=0.1, gt=0)
    patience: int = Field(default=3, ge=1)

    def initial_state(self) -> State:
        """Nothing measured yet."""
        return {"z_average": None, "mi": [], "entropy": [], "mi_peak": 0.0, "entropy_peak": 0.0, "collapsed": 0}

    def is_due(self, iteration: int) -> bool:
        """Whether this iteration measures: the first, and every ``every``-th."""
        return self.every is not None and (iteration == 1 or iteration % self.every == 0)

    def observe(self, state: State, iteration: int, measured: Mapping[str, float]) -> Verdict:
        """Take in one measurement.

        Args:
            state: of the call before.
            iteration: when it was made.
            measured: of :func:`collapse_metrics`.
        """
        z = measured["mi_z_score"]
        average = z if state["z_average"] is None else self.decay * state["z_average"] + (1 - self.decay) * z
        mi = [*state["mi"], measured["mutual_information"]][-self.window :]
        entropy = [*state["entropy"], measured["conditional_entropy"]][-self.window :]
        mi_now, entropy_now = level(mi, self.window), level(entropy, self.window)
        mi_peak, entropy_peak = max(state["mi_peak"], mi_now or 0.0), max(state["entropy_peak"], entropy_now or 0.0)
        collapsed = (
            mi_now is not None
            and entropy_now is not None
            and mi_peak >= self.floor
            and mi_now < self.share * mi_peak
            and entropy_now >= self.entropy_share * entropy_peak
        )
        metrics = dict(measured) | {"mi_z_score_average": average}
        in_a_row = state["collapsed"] + 1 if collapsed else 0
        alarm = None
        if in_a_row == self.patience:
            top = f", its prompt is found in {measured['retrieval_at_1']:.0%}" if "retrieval_at_1" in measured else ""
            alarm = Alarm(
                _KIND,
                iteration,
                f"template collapse: responses no longer depend on their prompts: the mutual information fell from "
                f"{mi_peak:.3g} to {mi_now:.3g} nats (iteration {iteration}) while the entropy stays at "
                f"{entropy_now:.3g}{top}",
                metrics,
            )
        after = {
            "z_average": average, "mi": mi, "entropy": entropy, "mi_peak": mi_peak, "entropy_peak": entropy_peak,
            "collapsed": in_a_row,
        }  # fmt: skip
        return Verdict(after, metrics, alarm, healthy=not collapsed)
