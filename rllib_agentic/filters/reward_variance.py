"""Keep the groups whose rewards differ most (or that lead by another score)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from rllib_agentic.components import Settings
from rllib_agentic.filters.filter import FilterResult, Groups
from rllib_agentic.filters.metrics import filter_metrics
from rllib_agentic.filters.scores import SCORES, ScoreName, reward_std
from rllib_agentic.filters.selection import Form, fraction_count, min_p, top_p
from rllib_agentic.trajectory import Trajectory

Rule = Literal["top_p", "top_k", "fraction", "min_p", "threshold"]

_VALUE_OF: dict[Rule, str] = {
    "top_p": "p",
    "top_k": "k",
    "fraction": "fraction",
    "min_p": "min_p",
    "threshold": "threshold",
}
_DEFAULT: dict[Rule, float] = {"top_p": 0.9, "fraction": 0.25, "min_p": 0.5, "threshold": 0.0}


class RewardVariance(Settings):
    """Ranks groups by the spread of their raw rewards and keeps the best by one of five rules.

    =============  ======================================================================  ===================
    rule           keeps                                                                   default
    =============  ======================================================================  ===================
    ``top_p``      the smallest set that holds the share ``p`` of the summed scores        p 0.9, linear
    ``top_k``      the best ``k``                                                          k must be given
    ``fraction``   the best share of all groups, rounded down, at least one                0.25
    ``min_p``      scores of at least ``min_p`` times the best one                         0.5
    ``threshold``  scores above ``threshold``                                              0: DAPO's filter
    =============  ======================================================================  ===================

    ``top_p`` is the filter of RAGEN-2 (arXiv:2604.06268), ``fraction`` that of StarPO-S (RAGEN, arXiv:2504.20073: the
    best 25 or 50 %). StarPO-S by numbers, four groups of two and ``fraction: 0.5``::

        group     rewards    std (n - 1)    kept
        a         1, 1       0              no
        b         0, 1       0.707          yes
        c         0, 0.2     0.141          yes: the second best of four
        d         0, 0.1     0.071          no

    and the same with ``rule: top_p, p: 0.9``: the scores sum to 0.919, 90 % are 0.827; b has 0.707, b and c 0.848,
    so b and c are kept.

    Always per group and on raw rewards. One valid trajectory has no spread. Ties are broken by a hash of the group id:
    always the same way, in no order of tasks.

    Attributes:
        rule: see above.
        p: share of the summed scores, for ``top_p``.
        form: ``linear`` or ``softmax``, for ``top_p``.
        k: number of groups, for ``top_k``.
        fraction: share of the groups that have a valid trajectory, for ``fraction``.
        min_p: share of the best score, for ``min_p``.
        threshold: for ``threshold``; strictly above (strictly below with ``keep: smallest``).
        score: what ranks the groups.
        keep: ``largest`` scores or ``smallest``; ``top_p`` and ``min_p`` know only ``largest``.
        zero_variance: ``drop`` groups of equal rewards before ranking, or ``include`` them as candidates.
    """

    rule: Rule = "top_p"
    p: float | None = Field(default=None, gt=0, le=1)
    form: Form | None = None
    k: int | None = Field(default=None, ge=1)
    fraction: float | None = Field(default=None, gt=0, le=1)
    min_p: float | None = Field(default=None, gt=0, le=1)
    threshold: float | None = None
    score: ScoreName = "reward_std"
    keep: Literal["largest", "smallest"] = "largest"
    zero_variance: Literal["drop", "include"] = "drop"

    @model_validator(mode="after")
    def _one_rule_one_value(self) -> RewardVariance:
        for rule, name in [*_VALUE_OF.items(), ("top_p", "form")]:
            if getattr(self, name) is not None and rule != self.rule:
                raise ValueError(f"{name!r} belongs to rule {rule!r}, but the rule is {self.rule!r}")
        if self.rule == "top_k" and self.k is None:
            raise ValueError("rule 'top_k' needs 'k', the number of groups to keep")
        if self.keep == "smallest" and self.rule in ("top_p", "min_p"):
            raise ValueError(f"rule {self.rule!r} keeps the largest scores; use top_k, fraction or threshold")
        return self

    @property
    def needs_groups(self) -> bool:
        """Whether a group of one is never kept: it has no spread."""
        return self.zero_variance == "drop"

    def __call__(self, groups: Groups) -> FilterResult:
        """See :class:`~rllib_agentic.filters.filter.GroupFilter`."""
        alive = [i for i, group in enumerate(groups) if any(t.invalid is None for t in group)]
        candidates = [i for i in alive if self.zero_variance == "include" or reward_std(groups[i]) > 0.0]
        scores = [SCORES[self.score](groups[i]) for i in candidates]
        sign = -1.0 if self.keep == "largest" else 1.0
        order = sorted(range(len(candidates)), key=lambda n: (sign * scores[n], _tie_break(groups[candidates[n]])))
        kept = {candidates[n] for n in self._choose(scores, order, len(alive))}
        keep = [i in kept for i in range(len(groups))]
        return FilterResult(keep, filter_metrics(groups, keep))

    def _choose(self, scores: list[float], order: list[int], total: int) -> list[int]:
        given = getattr(self, _VALUE_OF[self.rule])
        value = float(_DEFAULT[self.rule] if given is None else given)
        match self.rule:
            case "top_p":
                return top_p(scores, order, value, self.form or "linear")
            case "top_k":
                return order[: int(value)]
            case "fraction":
                return order[: fraction_count(value, total)] if total else []
            case "min_p":
                return min_p(scores, order, value)
            case "threshold":
                return [n for n in order if (scores[n] > value if self.keep == "largest" else scores[n] < value)]


def _tie_break(group: Sequence[Trajectory]) -> bytes:
    return hashlib.blake2b(group[0].group_id.encode(), digest_size=8).digest()
