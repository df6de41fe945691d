"""Correction for the difference between the engine's and the learner's logprobs of one and the same policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from rllib_agentic.components import Settings
from rllib_agentic.losses.kl import LARGEST_LOG_RATIO

Floats = npt.NDArray[np.floating]
Correction = Literal["off", "token_truncate", "sequence_truncate", "token_mask", "sequence_mask"]
DEFAULT_BANDS: dict[str, tuple[float, float]] = {
    "off": (0.0, np.inf),
    "token_truncate": (0.0, 2.0),
    "sequence_truncate": (0.0, 3.0),
    "token_mask": (0.5, 2.0),
    "sequence_mask": (0.99, 1.01),
}


class Importance(Settings):
    """How the weight ``w = exp(learner - engine)`` of sampled tokens enters the loss, without gradient.

    Truncation multiplies a token's loss by ``min(max(w, lower), upper)`` (truncated importance sampling, Ionides
    2008); masking keeps the loss as it is inside ``[lower, upper]`` and drops it outside. ``token_*`` takes each
    token's own ``w``; ``sequence_truncate`` the product over the trajectory; ``sequence_mask`` its geometric mean.
    """

    mode: Correction = Field(
        default="off", description="off, token_truncate, sequence_truncate, token_mask, sequence_mask"
    )
    lower: float | None = Field(default=None, ge=0.0, description="lower bound; by mode 0, 0, 0.5, 0.99")
    upper: float | None = Field(default=None, gt=0.0, description="upper bound; by mode 2, 3, 2, 1.01")

    @model_validator(mode="after")
    def _ordered(self) -> Importance:
        lower, upper = self.band
        if not lower <= upper:
            raise ValueError(f"importance: lower {lower} is above upper {upper}")
        if self.mode == "off" and (self.lower is not None or self.upper is not None):
            raise ValueError("importance: bounds have no effect with mode 'off'; choose a mode")
        return self

    @property
    def band(self) -> tuple[float, float]:
        """The bounds in force: the given ones, or the mode's own."""
        lower, upper = DEFAULT_BANDS[self.mode]
        return (lower if self.lower is None else self.lower, upper if self.upper is None else self.upper)

    def weights(self, log_ratios: Sequence[Floats], trajectories: Sequence[int]) -> list[Floats]:
        """The factor of every action token's loss.

        Args:
            log_ratios: for each row ``learner - engine`` at its action tokens, ``[A_row]``.
            trajectories: each row's trajectory number; the rows of a trajectory must all be here.

        Returns:
            For each row ``[A_row]``.

        Example:
            >>> rows = [np.log([1.0, 3.0]), np.log([2.0])]
            >>> Importance(mode="token_truncate").weights(rows, [0, 0])
            [array([1., 2.]), array([2.])]
            >>> Importance(mode="sequence_truncate", upper=5).weights(rows, [0, 0])
            [array([5., 5.]), array([5.])]
        """
        if self.mode == "off":
            return [np.ones_like(row) for row in log_ratios]
        if self.mode.startswith("sequence"):
            log_ratios = _over_sequences(log_ratios, trajectories, mean=self.mode == "sequence_mask")
        lower, upper = self.band
        ratios = [np.exp(np.clip(row, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)) for row in log_ratios]
        if self.mode.endswith("mask"):
            return [((ratio >= lower) & (ratio <= upper)).astype(ratio.dtype) for ratio in ratios]
        return [np.clip(ratio, lower, upper) for ratio in ratios]


def _over_sequences(log_ratios: Sequence[Floats], trajectories: Sequence[int], *, mean: bool) -> list[Floats]:
    totals: dict[int, float] = {}
    tokens: dict[int, int] = {}
    for row, trajectory in zip(log_ratios, trajectories, strict=True):
        totals[trajectory] = totals.get(trajectory, 0.0) + float(row.sum(dtype=np.float64))
        tokens[trajectory] = tokens.get(trajectory, 0) + len(row)
    return [
        np.full_like(row, totals[trajectory] / (max(tokens[trajectory], 1) if mean else 1))
        for row, trajectory in zip(log_ratios, trajectories, strict=True)
    ]


def mismatch(differences: Floats, band: float = 0.1) -> dict[str, float]:
    """Describe ``learner - engine`` logprobs of one policy: the mean alone hides what matters.

    Args:
        differences: ``[A]``, all action tokens, in nats.
        band: a difference of more than this counts as outside.

    Returns:
        ``mean``, ``mean_abs``, ``p95`` and ``max`` (of absolute values), ``outside`` (a fraction), ``kl`` (of the
        engine from the learner, estimator k3) and ``ess`` (effective sample size of the weights, as a fraction).
        Empty without tokens.

    Example:
        >>> found = mismatch(np.array([0.0, 0.0, 0.3, -0.3]))
        >>> found["mean"], found["max"], found["outside"]
        (0.0, 0.3, 0.5)
    """
    if not len(differences):
        return {}
    exact = np.asarray(differences, np.float64)
    size = np.abs(exact)
    ratio = np.exp(np.clip(exact, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO))
    return {
        "mean": float(exact.mean()),
        "mean_abs": float(size.mean()),
        "p95": float(np.quantile(size, 0.95)),
        "max": float(size.max()),
        "outside": float((size > band).mean()),
        "kl": float((ratio - 1 - exact).mean()),
        "ess": float(ratio.sum() ** 2 / (len(ratio) * np.square(ratio).sum())),
    }
