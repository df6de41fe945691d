"""A turn: the context tokens that were added, the tokens that the policy sampled, and what the environment said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from rllib_agentic.trajectory.message import Message

Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


class FinishReason(StrEnum):
    """Why the engine stopped. It alone decides about truncation; the last id never does."""

    STOP = "stop"  # a stop id was sampled: it is the last of the ids, trained like any other
    STOP_STRING = "stop_string"  # the text reached a stop string; the whole last token is kept
    LENGTH = "length"  # the token limit
    ABORT = "abort"  # interrupted; what was sampled so far is kept, and is never parsed as a final turn


@dataclass(frozen=True, slots=True)
class LegalTokens:
    """Which tokens were legal at each sampled position, stored sparsely (compressed sparse rows).

    Position ``i`` allowed ``ids[offsets[i]:offsets[i + 1]]``. An empty range means *no constraint*.

    Attributes:
        offsets: int32, length positions + 1, starting at 0, not decreasing.
        ids: int32, the legal token ids, position after position.
    """

    offsets: Ids
    ids: Ids

    def __post_init__(self) -> None:
        """Check the form once, where it is made."""
        steps = np.diff(self.offsets)
        if len(self.offsets) < 1 or self.offsets[0] != 0 or (steps < 0).any() or self.offsets[-1] != len(self.ids):
            raise ValueError(f"LegalTokens: offsets {self.offsets!r} do not describe {len(self.ids)} ids")

    def __len__(self) -> int:
        """The number of positions."""
        return len(self.offsets) - 1

    def at(self, position: int) -> Ids:
        """The legal ids at one position; empty where every token is legal."""
        return self.ids[self.offsets[position] : self.offsets[position + 1]]


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: the agent speaks once, the environment answers once.

    Attributes:
        context_ids: int32 ``[C]``, the tokens *added* to the context since this segment's last turn (all of the
            context where the turn opens a segment). Never trained.
        action_ids: int32 ``[A]``, exactly the ids that the engine sampled, a sampled stop id included.
        logprobs: float32 ``[A]``, each under the very distribution it was sampled from.
        policy_versions: int32 ``[A]``, the version of the weights that sampled each token.
        finish_reason: why sampling ended.
        segment: number of the segment this turn belongs to, from 0.
        text: the decoded action without stop token, and up to the stop string where one ended it, for people and
            environments; never encoded again.
        observation: what the environment answered (empty where the episode ended without an answer).
        reward: this turn's reward, raw.
        rewards: named components of ``reward``, for logging.
        legal_tokens: the legal-token mask under which the turn was sampled, or None.
        state_key: hash of the state before the action, for methods that group equal states; None if unknown.
        metrics: numbers the environment or tools report for this turn.
    """

    context_ids: Ids
    action_ids: Ids
    logprobs: Floats
    policy_versions: Ids
    finish_reason: FinishReason
    segment: int
    text: str
    observation: tuple[Message, ...] = ()
    reward: float = 0.0
    rewards: Mapping[str, float] = field(default_factory=dict)
    legal_tokens: LegalTokens | None = None
    state_key: str | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Lengths agree, or the turn does not come to be."""
        n = len(self.action_ids)
        if len(self.logprobs) != n or len(self.policy_versions) != n:
            raise ValueError(
                f"Turn: {n} action ids, but {len(self.logprobs)} logprobs and {len(self.policy_versions)} versions"
            )
        if self.legal_tokens is not None and len(self.legal_tokens) != n:
            raise ValueError(f"Turn: {n} action ids, but legal tokens for {len(self.legal_tokens)} positions")
