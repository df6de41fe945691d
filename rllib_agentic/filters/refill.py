"""What to do when filters leave too few groups: draw again, train on less, skip, or stop."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal, NamedTuple

from pydantic import Field

from rllib_agentic.components import Settings


class RefillAction(StrEnum):
    """What an iteration does next."""

    DRAW = "draw"  # sample `draw` more groups, filter them, ask again
    TRAIN = "train"  # update on what was kept, at most `wanted` groups
    SKIP = "skip"  # no update in this iteration
    STOP = "stop"  # end the run: the filters have kept nothing for too long


class RefillDecision(NamedTuple):
    """The answer of :meth:`RefillSettings.decide`.

    Attributes:
        action: what to do next.
        draw: how many groups to sample; 0 unless ``action`` is DRAW.
        loss_scale: factor for the loss; 1 unless a shrunk batch is trained with ``scale_loss``.
        empty_iterations: iterations in a row that kept nothing, this one included; carry it to the next iteration.
        message: one line for the log where something was lost, else empty.
    """

    action: RefillAction
    draw: int
    loss_scale: float
    empty_iterations: int
    message: str


class RefillSettings(Settings):
    """Bounded refilling of a filtered batch; a pure function of counts, so it can neither hang nor forget.

    ``resample: true`` is DAPO's dynamic sampling (arXiv:2503.14476) with a bound, ``false`` the shrinking batch of
    RAGEN-2 (arXiv:2604.06268), which also scales the loss by the kept share or its root, or not at all.

    Example:
        >>> refill = RefillSettings(resample=True, max_tries=2)
        >>> decision = refill.decide(kept=5, wanted=8, tries=1, empty_iterations=0)
        >>> decision.action.value, decision.draw
        ('draw', 3)
        >>> refill.decide(kept=6, wanted=8, tries=2, empty_iterations=0).action.value
        'train'

    Attributes:
        resample: sample again until the batch is full, or shrink it.
        max_tries: the most times an iteration samples, the first one included.
        scale_loss: factor for the loss of a batch that stayed too small: ``none`` (1), ``linear`` (kept / wanted) or
            ``sqrt`` of that. ``none`` is a full step on fewer groups.
        stop_after_empty: end the run after so many iterations in a row that kept nothing; None for never.
    """

    resample: bool = False
    max_tries: int = Field(default=3, ge=1)
    scale_loss: Literal["none", "linear", "sqrt"] = "none"
    stop_after_empty: int | None = Field(default=5, ge=1)

    def decide(self, *, kept: int, wanted: int, tries: int, empty_iterations: int) -> RefillDecision:
        """What to do after ``tries`` samplings of this iteration.

        Args:
            kept: groups that passed the filters so far in this iteration.
            wanted: groups of a full batch, at least 1.
            tries: samplings so far in this iteration, at least 1.
            empty_iterations: as the last iteration's decision said; 0 at the start.
        """
        if wanted < 1 or tries < 1 or kept < 0:
            raise ValueError(f"refill: wanted {wanted} and tries {tries} must be at least 1, kept {kept} at least 0")
        if kept >= wanted:
            return RefillDecision(RefillAction.TRAIN, 0, 1.0, 0, "")
        if self.resample and tries < self.max_tries:
            return RefillDecision(RefillAction.DRAW, wanted - kept, 1.0, empty_iterations, "")
        if kept:
            share = kept / wanted
            scale = {"none": 1.0, "linear": share, "sqrt": math.sqrt(share)}[self.scale_loss]
            return RefillDecision(
                RefillAction.TRAIN, 0, scale, 0, f"filters: {kept} of {wanted} groups were kept after {tries} tries"
            )
        empty = empty_iterations + 1
        if self.stop_after_empty is not None and empty >= self.stop_after_empty:
            return RefillDecision(
                RefillAction.STOP,
                0,
                1.0,
                empty,
                f"filters: no group was kept for {empty} iterations in a row, so nothing can be learned. Look at the "
                f"rewards (are all equal?), loosen the filters, or raise stop_after_empty",
            )
        return RefillDecision(
            RefillAction.SKIP, 0, 1.0, empty, f"filters: no group was kept after {tries} tries; no update"
        )
