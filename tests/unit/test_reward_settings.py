"""The section ``rewards``: weights of components, outcomes, penalties a turn, soft punishment of length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rllib_agentic.components import parse_settings
from rllib_agentic.rewards import OverlongPunishment, RewardSettings
from rllib_agentic.trajectory import FinishReason, Task, Trajectory, Turn


def turn(reward: float, tokens: int = 2, observed: int = 5, **fields: Any) -> Turn:
    return Turn(
        context_ids=np.zeros(observed, np.int32),
        action_ids=np.ones(tokens, np.int32),
        logprobs=np.zeros(tokens, np.float32),
        policy_versions=np.zeros(tokens, np.int32),
        finish_reason=FinishReason.STOP,
        segment=0,
        text="x",
        reward=reward,
        **fields,
    )


def trajectory(*turns: Turn, success: bool = True, **fields: Any) -> Trajectory:
    whole: dict[str, Any] = {"terminated": True, "truncated": False, "end_reason": "terminated", **fields}
    return Trajectory(Task("bandit", "train", 0), "g", 0, (), turns, success=success, **whole)


def shaped(settings: dict[str, Any], *turns: Turn, most_tokens: int = 100, **fields: Any) -> Trajectory:
    chosen = parse_settings(RewardSettings, settings, "rewards")
    return chosen(trajectory(*turns, **fields), most_tokens=most_tokens)


def test_the_defaults_change_nothing() -> None:
    given = trajectory(turn(0.5, rewards={"a": 0.2}), turn(1.0))
    assert RewardSettings()(given, most_tokens=10) is given


def test_components_count_by_weight_and_the_rest_as_environment() -> None:
    found = shaped({"weights": {"format": 0.5}}, turn(1.5, rewards={"format": 0.2, "answer": 1.0}))
    assert found.turns[0].rewards == pytest.approx({"environment": 0.3, "format": 0.1, "answer": 1.0})
    assert found.total_reward == pytest.approx(1.4)


def test_components_alone_without_the_environments_reward() -> None:
    found = shaped({"environment": 0.0, "weights": {"format": 2.0}}, turn(1.5, rewards={"format": 0.2, "answer": 1.0}))
    assert found.total_reward == pytest.approx(0.4)


def test_an_outcome_lies_on_the_last_turn_beside_the_turns_rewards_or_alone() -> None:
    both = shaped({"outcome": {"success": 1.0, "failure": -1.0}}, turn(0.25), turn(0.5))
    assert [t.reward for t in both.turns] == [0.25, 1.5]
    alone = {"environment": 0.0, "outcome": {"success": 1.0, "failure": -1.0}}
    assert [t.reward for t in shaped(alone, turn(0.25), turn(0.5)).turns] == [0.0, 1.0]
    assert shaped(alone, turn(0.25), turn(0.5), success=False).total_reward == -1.0


def test_turns_that_report_a_metric_are_penalised() -> None:
    settings = {"per_turn": {"invalid_action": -0.1}}
    found = shaped(settings, turn(0.0, metrics={"invalid_action": 1.0}), turn(1.0, metrics={"invalid_action": 0.0}))
    assert [t.reward for t in found.turns] == [-0.1, 1.0]
    assert found.turns[0].rewards["per_turn/invalid_action"] == -0.1


def test_parts_of_a_turn_add_up_to_its_reward_also_where_names_meet() -> None:
    settings = {"weights": {"outcome": 0.5}, "outcome": {"success": 1.0}, "overlong": {"max_tokens": 4}}
    found = shaped(settings, turn(2.0, tokens=4, rewards={"outcome": 2.0, "environment": -1.0}))
    assert found.turns[0].rewards == pytest.approx({"environment": 0.0, "outcome": 2.0, "overlong": -1.0})
    assert found.turns[0].reward == pytest.approx(1.0)


def test_overlong_counts_sampled_tokens_only() -> None:  # AL23
    quiet = shaped({"overlong": {}}, turn(1.0, tokens=40, observed=500), turn(0.0, tokens=40, observed=500))
    assert quiet.total_reward == 1.0
    assert shaped({"overlong": {}}, turn(1.0, tokens=90)).total_reward == pytest.approx(0.5)


def test_overlong_by_the_numbers_of_the_paper() -> None:
    # L = 20480, buffer 4096: from 16384 tokens on, linear down to -1
    punish = OverlongPunishment()
    lengths = (0, 16384, 16385, 18432, 20480, 20481, 10**6)
    expected = [0, 0, -1 / 4096, -0.5, -1, -1, -1]
    assert [punish(n, most_tokens=20480) for n in lengths] == pytest.approx(expected)
    assert OverlongPunishment(weight=0.5, max_tokens=10)(10, most_tokens=20480) == -0.5


def test_names_that_nothing_reports_are_found() -> None:
    settings = RewardSettings(
        weights={"format": 1.0, "fromat": 1.0}, per_turn={"invalid_action": -1.0, "invalid": -1.0}
    )
    seen = trajectory(turn(0.0, rewards={"format": 0.1}), turn(0.0, metrics={"invalid_action": 0.0}))
    assert settings.unseen([seen]) == ["weights.fromat", "per_turn.invalid"]


def test_an_invalid_trajectory_stays_as_it_is() -> None:
    lost = trajectory(turn(0.3), success=False, terminated=False, end_reason="session_lost", invalid="session_lost")
    assert RewardSettings(outcome={"success": 1.0, "failure": -1.0})(lost, most_tokens=10) is lost  # type: ignore[arg-type]


def test_a_penalty_an_episode_counts_once_and_on_the_last_turn() -> None:
    turns = (turn(0.0, metrics={"code_failed": 1}), turn(0.0, metrics={"code_failed": 2}), turn(1.0))
    found = shaped({"per_episode": {"code_failed": -0.5}, "outcome": {"success": 1.0, "failure": -1.0}}, *turns)
    assert [t.reward for t in found.turns] == [0.0, 0.0, 1.5]
    assert found.turns[-1].rewards == {"environment": 1.0, "per_episode/code_failed": -0.5, "outcome": 1.0}
    clean = shaped({"per_episode": {"code_failed": -0.5}}, turn(1.0, metrics={"code_failed": 0}))
    assert clean.turns[-1].rewards["per_episode/code_failed"] == 0.0 and clean.total_reward == 1.0
    assert parse_settings(RewardSettings, {"per_episode": {"x": 1}}, "rewards").unseen([trajectory(*turns)]) == [
        "per_episode.x"
    ]
