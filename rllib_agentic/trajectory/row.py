"""A row: one segment, flat, as the learner trains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rllib_agentic.trajectory.trajectory import Trajectory
from rllib_agentic.trajectory.turn import LegalTokens, Turn

NO_TURN = -1


@dataclass(frozen=True, slots=True)
class Row:
    """One segment of a trajectory. Every array has length T; there is no prompt / response split.

    ::

        token_ids    S S U U U A A A O O O A A G      S system, U first observation, A sampled, O observation,
        action_mask  0 0 0 0 0 1 1 1 0 0 0 1 1 0      G tokens added without being sampled
        turn_index   . . . . . 0 0 0 . . . 1 1 .      (-1 where the mask is false)

    Attributes:
        token_ids: int32.
        action_mask: bool, true exactly on sampled tokens.
        logprobs: float32, the engine's, 0 where the mask is false.
        turn_index: int32, the turn's number in the *trajectory* on sampled tokens, else -1.
        policy_versions: int32, on sampled tokens, else -1.
        advantages: float32, one value a token, 0 where the mask is false.
        rewards: float32, each turn's raw reward on its last sampled token; what a critic's GAE reads.
        legal_tokens: the legal-token mask of the sampled tokens in order (not of all T), or None.
        trajectory: number of the trajectory in the batch, so that sequence-level losses can join rows.
        last: whether this row holds the trajectory's last turn.
        terminated: whether the trajectory ended by the task (no bootstrap) rather than by a limit.
    """

    token_ids: npt.NDArray[np.int32]
    action_mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]
    turn_index: npt.NDArray[np.int32]
    policy_versions: npt.NDArray[np.int32]
    advantages: npt.NDArray[np.float32]
    rewards: npt.NDArray[np.float32]
    legal_tokens: LegalTokens | None = None
    trajectory: int = 0
    last: bool = True
    terminated: bool = True

    def __post_init__(self) -> None:
        """Check lengths, mask type and that nothing lives outside the mask."""
        n = len(self.token_ids)
        for name in ("action_mask", "logprobs", "turn_index", "policy_versions", "advantages", "rewards"):
            if len(getattr(self, name)) != n:
                raise ValueError(f"Row: {n} token ids, but {name} has length {len(getattr(self, name))}")
        if self.action_mask.dtype != np.bool_:
            raise TypeError(f"Row: action_mask must be bool, got {self.action_mask.dtype}")
        if not self.action_mask.any():
            raise ValueError("Row: no sampled token, so nothing to train on")
        if self.action_mask[0]:
            raise ValueError("Row: the first token has no context, so it cannot have been sampled")
        if not np.isfinite(self.logprobs).all() or not np.isfinite(self.advantages).all():
            raise ValueError("Row: logprobs and advantages must be finite")
        if self.legal_tokens is not None and len(self.legal_tokens) != int(self.action_mask.sum()):
            raise ValueError(
                f"Row: {int(self.action_mask.sum())} sampled tokens, "
                f"but legal tokens for {len(self.legal_tokens)} positions"
            )

    def __len__(self) -> int:
        """T, the number of tokens."""
        return len(self.token_ids)


def rows_of(trajectory: Trajectory, advantages: Sequence[np.ndarray | float], *, number: int = 0) -> list[Row]:
    """Flatten a valid trajectory into rows, one a segment that has sampled tokens.

    Args:
        trajectory: a valid trajectory.
        advantages: one entry a turn: a number for the whole turn, or float ``[A]``, one a sampled token.
        number: the trajectory's number in the batch.

    Raises:
        ValueError: if the trajectory is invalid or the number of entries differs from the number of turns.
    """
    if trajectory.invalid is not None:
        raise ValueError(f"rows_of: an invalid trajectory ({trajectory.invalid}) is not evidence about the policy")
    if len(advantages) != len(trajectory.turns):
        raise ValueError(f"rows_of: {len(trajectory.turns)} turns, but {len(advantages)} advantages")
    segments: dict[int, list[int]] = {}
    for i, turn in enumerate(trajectory.turns):
        segments.setdefault(turn.segment, []).append(i)
    trained = [s for s, turns in segments.items() if any(len(trajectory.turns[i].action_ids) for i in turns)]
    rewards = _rewards_on_sampled_turns(trajectory.turns)
    return [_row(trajectory, segments[s], advantages, rewards, number, last=s == trained[-1]) for s in trained]


def _rewards_on_sampled_turns(turns: Sequence[Turn]) -> list[float]:
    """Each turn's reward; that of a turn that sampled nothing goes to the one before (or, at the start, after)."""
    rewards, at, pending = [0.0] * len(turns), -1, 0.0
    for i, turn in enumerate(turns):
        if len(turn.action_ids):
            at, rewards[i], pending = i, turn.reward + pending, 0.0
        elif at < 0:
            pending += turn.reward
        else:
            rewards[at] += turn.reward
    return rewards


def _row(
    trajectory: Trajectory,
    turns: list[int],
    advantages: Sequence[np.ndarray | float],
    rewards: list[float],
    number: int,
    *,
    last: bool,
) -> Row:
    columns: dict[str, list[np.ndarray]] = {
        name: []
        for name in (
            "token_ids",
            "action_mask",
            "logprobs",
            "turn_index",
            "policy_versions",
            "advantages",
            "rewards",
        )
    }

    def add(ids: np.ndarray, mask: bool, logprobs: object, index: int, versions: object, adv: object) -> None:
        n = len(ids)
        columns["token_ids"].append(np.asarray(ids, np.int32))
        columns["action_mask"].append(np.full(n, mask))
        columns["logprobs"].append(np.broadcast_to(np.asarray(logprobs, np.float32), n))
        columns["turn_index"].append(np.full(n, index, np.int32))
        columns["policy_versions"].append(np.broadcast_to(np.asarray(versions, np.int32), n))
        columns["advantages"].append(np.broadcast_to(np.asarray(adv, np.float32), n))
        columns["rewards"].append(np.zeros(n, np.float32))

    ends: list[int] = []
    for i in turns:
        turn = trajectory.turns[i]
        add(turn.context_ids, False, 0.0, NO_TURN, -1, 0.0)
        add(turn.action_ids, True, turn.logprobs, i, turn.policy_versions, advantages[i])
        ends.append(sum(len(part) for part in columns["token_ids"]) - 1)
    flat = {name: np.concatenate(parts) for name, parts in columns.items()}
    for i, end in zip(turns, ends, strict=True):
        if len(trajectory.turns[i].action_ids):
            flat["rewards"][end] = rewards[i]
    return Row(
        **flat,
        legal_tokens=_join_legal([trajectory.turns[i] for i in turns]),
        trajectory=number,
        last=last,
        terminated=trajectory.terminated,
    )


def _join_legal(turns: list[Turn]) -> LegalTokens | None:
    if all(t.legal_tokens is None for t in turns):
        return None
    counts, ids = [], []
    for turn in turns:
        if turn.legal_tokens is None:
            counts.append(np.zeros(len(turn.action_ids), np.int32))
        else:
            counts.append(np.diff(turn.legal_tokens.offsets))
            ids.append(turn.legal_tokens.ids)
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int32)
    return LegalTokens(offsets, np.concatenate(ids).astype(np.int32))
