"""Rows: every sampled token once, with its own numbers; everything else masked."""

from typing import Any

import numpy as np
import pytest

from rllib_agentic.trajectory import FinishReason, LegalTokens, Row, Task, Trajectory, Turn, rows_of


def turn(context: list[int], action: list[int], *, segment: int = 0, reward: float = 0.0, legal: Any = None) -> Turn:
    return Turn(
        context_ids=np.array(context, np.int32),
        action_ids=np.array(action, np.int32),
        logprobs=-np.arange(1, len(action) + 1, dtype=np.float32),
        policy_versions=np.full(len(action), 3, np.int32),
        finish_reason=FinishReason.STOP,
        segment=segment,
        text="",
        reward=reward,
        legal_tokens=legal,
    )


def trajectory(*turns: Turn, **changes: Any) -> Trajectory:
    fields = {"terminated": True, "truncated": False, "success": True, "end_reason": "terminated", **changes}
    return Trajectory(Task("e", "train", 0), "g", 0, (), turns, **fields)


def test_one_segment_flat() -> None:  # TM16, TM21
    (row,) = rows_of(
        trajectory(turn([10, 11], [20, 21], reward=0.5), turn([30, 31], [22, 23], reward=1.0)),
        [2.0, np.array([3.0, 4.0])],
    )
    assert row.token_ids.tolist() == [10, 11, 20, 21, 30, 31, 22, 23]
    assert row.action_mask.tolist() == [False, False, True, True, False, False, True, True]
    assert row.logprobs.tolist() == [0, 0, -1, -2, 0, 0, -1, -2]
    assert row.turn_index.tolist() == [-1, -1, 0, 0, -1, -1, 1, 1]
    assert row.policy_versions.tolist() == [-1, -1, 3, 3, -1, -1, 3, 3]
    assert row.advantages.tolist() == [0, 0, 2, 2, 0, 0, 3, 4]
    assert row.rewards.tolist() == [0, 0, 0, 0.5, 0, 0, 0, 1.0]  # RW06, AL09: on the last sampled token of its turn


def test_segments_become_rows_and_each_token_is_in_one() -> None:
    rows = rows_of(
        trajectory(turn([1], [2]), turn([1, 5], [6], segment=1), turn([7], [8], segment=1)), [1.0, 2.0, 3.0], number=4
    )
    assert [r.token_ids.tolist() for r in rows] == [[1, 2], [1, 5, 6, 7, 8]]
    assert [r.turn_index[r.action_mask].tolist() for r in rows] == [[0], [1, 2]]
    assert [(r.last, r.trajectory) for r in rows] == [(False, 4), (True, 4)]


def test_legal_tokens_are_joined_with_unconstrained_turns_in_between() -> None:
    legal = LegalTokens(np.array([0, 2, 3], np.int32), np.array([4, 9, 2], np.int32))
    (row,) = rows_of(trajectory(turn([1], [4, 2], legal=legal), turn([7], [8, 2])), [0.0, 0.0])
    assert row.legal_tokens is not None
    assert [row.legal_tokens.at(i).tolist() for i in range(4)] == [[4, 9], [2], [], []]


def test_trajectories_that_could_poison_training_do_not_come_to_be() -> None:  # TM14, AL11
    with pytest.raises(ValueError, match="sampled no token"):
        trajectory()
    with pytest.raises(ValueError, match="terminated wins"):
        trajectory(turn([1], [2]), truncated=True)
    with pytest.raises(ValueError, match="3 action ids, but 2 logprobs"):
        Turn(np.array([1]), np.array([1, 2, 3]), np.zeros(2), np.zeros(3), FinishReason.STOP, 0, "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"action_mask": np.array([0, 1, 1])}, TypeError, "must be bool"),  # AL24
        ({"action_mask": np.array([False] * 3)}, ValueError, "no sampled token"),
        ({"action_mask": np.array([True] * 3)}, ValueError, "no context"),
        ({"logprobs": np.array([0, np.nan, 0], np.float32)}, ValueError, "finite"),  # AL25
        ({"advantages": np.zeros(2, np.float32)}, ValueError, "3 token ids, but advantages has length 2"),
    ],
)
def test_rows_are_checked_when_they_are_made(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    fields: dict[str, Any] = {
        "token_ids": np.array([1, 2, 3], np.int32),
        "action_mask": np.array([False, True, True]),
        "logprobs": np.zeros(3, np.float32),
        "turn_index": np.zeros(3, np.int32),
        "policy_versions": np.zeros(3, np.int32),
        "advantages": np.zeros(3, np.float32),
        "rewards": np.zeros(3, np.float32),
    }
    with pytest.raises(error, match=message):
        Row(**{**fields, **changes})


def test_versions_and_lengths_count_sampled_tokens_alone() -> None:  # WS07, AL23
    old, new = turn([1] * 50, [2, 3]), turn([4], [5])
    new.policy_versions[:] = 5
    found = trajectory(old, new)
    assert found.oldest_version == 3 and found.num_action_tokens == 3


def test_rewards_of_turns_that_sampled_nothing_are_not_lost() -> None:
    rows = rows_of(
        trajectory(
            turn([1], [], reward=0.25),
            turn([2], [3], reward=0.5),
            turn([4], [], reward=1.0),
            turn([1, 9], [], segment=1, reward=2.0),
        ),
        [0.0] * 4,
    )
    assert [r.rewards.tolist() for r in rows] == [[0.0, 0.0, 3.75, 0.0]]
