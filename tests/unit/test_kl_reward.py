"""The divergence in the reward: by token where the method has token-level returns, else by turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tiny_policy import TinyPolicy, make_trainer, random_rows

from rllib_agentic.advantages.action_tokens import with_penalties
from rllib_agentic.advantages.reinforce_pp import ReinforcePPEstimator
from rllib_agentic.algorithms.collected import Collected
from rllib_agentic.algorithms.kl_reward import kl_penalties, take_from_rewards
from rllib_agentic.algorithms.presets import algorithm_class
from rllib_agentic.algorithms.update import Update, make_update
from rllib_agentic.errors import InputError
from rllib_agentic.learner.settings import KLSettings
from rllib_agentic.trajectory import FinishReason, Row, Task, Trajectory, Turn, rows_of


def turn(logprobs: Sequence[float], reward: float = 0.0, segment: int = 0) -> Turn:
    n = len(logprobs)
    return Turn(
        context_ids=np.arange(3, dtype=np.int32),
        action_ids=np.arange(n, dtype=np.int32) + 7,
        logprobs=np.array(logprobs, np.float32),
        policy_versions=np.zeros(n, np.int32),
        finish_reason=FinishReason.STOP,
        segment=segment,
        text="",
        reward=reward,
    )


def trajectory(*turns: Turn, group: str = "g", member: int = 0, invalid: str | None = None) -> Trajectory:
    return Trajectory(
        Task("bandit", "train", 0), group, member, (), turns,
        terminated=invalid is None, truncated=False, success=False, end_reason="terminated", invalid=invalid,
    )  # fmt: skip


@dataclass
class Result:
    value: Any
    ok: bool = True

    def get(self) -> Any:
        return self.value


class TwoLearners:
    """A reference that gives every token the logprob -1, split over two learners."""

    def foreach_learner(self, call: Callable[[Any], Any]) -> list[Result]:
        return [Result(call(self._Learner(rank))) for rank in range(2)]

    @dataclass
    class _Learner:
        rank: int

        def reference_logprobs(self, rows: Sequence[Row]) -> dict[int, np.ndarray]:
            return {i: np.full(int(rows[i].action_mask.sum()), -1.0) for i in range(self.rank, len(rows), 2)}


LEARNERS: Any = TwoLearners()


def update_of(preset: str, trajectories: list[Trajectory], coefficient: float = 0.5, **changes: Any) -> Update:
    config = algorithm_class(preset).get_default_config()
    kl = {"learner": {"kl": {"coefficient": coefficient, "place": "reward"}}}
    sections = config.update_from_dict({"env": "bandit", **kl, **changes}).sections()
    collected = Collected(groups=[trajectories], keep=[True])
    return make_update(collected, sections, iteration=1, learners=LEARNERS)


def test_penalties_of_every_row_whichever_learner_scored_it() -> None:
    rows = [r for t in ([-0.5], [-1.0, -2.0], [-1.5]) for r in rows_of(trajectory(turn(t)), [0.0])]
    found = kl_penalties(rows, LEARNERS, KLSettings(coefficient=0.1, place="reward"))
    assert [p.tolist() for p in found] == [[pytest.approx(0.05)], [0.0, pytest.approx(-0.1)], [pytest.approx(-0.05)]]
    (k3,) = kl_penalties(rows[:1], LEARNERS, KLSettings(coefficient=1.0, place="reward", estimator="k3"))
    assert k3.tolist() == [pytest.approx(math.exp(-0.5) - 1 + 0.5)]


def test_the_learner_scores_the_frozen_policy_and_not_the_trained_one() -> None:
    policy, reference = TinyPolicy(seed=0), TinyPolicy(seed=1)
    rows = random_rows(5, seed=3)
    found = make_trainer(policy, reference=reference).reference_logprobs(rows, [1, 4])
    assert sorted(found) == [1, 4]
    for i, logprobs in found.items():
        ids = torch.from_numpy(rows[i].token_ids.astype(np.int64))[None]
        every = reference.logits(reference.hidden(ids)).log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
        np.testing.assert_allclose(logprobs, every[torch.from_numpy(rows[i].action_mask[1:])].detach(), atol=1e-9)


def test_without_a_reference_there_is_nothing_to_score() -> None:
    with pytest.raises(RuntimeError, match=r"learner\.kl\.coefficient"):
        make_trainer(TinyPolicy()).reference_logprobs(random_rows(1), [0])


def test_a_critic_reads_rewards_that_lost_each_tokens_penalty() -> None:
    (row,) = rows_of(trajectory(turn([-0.5, -1.0]), turn([-2.0], reward=1.0)), [0.0, 0.0])
    penalised = take_from_rewards(row, np.array([0.25, 0.5, -1.0]))
    assert penalised.rewards[row.action_mask].tolist() == [-0.25, -0.5, 2.0]
    assert not penalised.rewards[~row.action_mask].any() and row.rewards[-1] == 1.0


def test_turns_lose_the_sum_of_their_tokens_penalties() -> None:
    found = with_penalties(trajectory(turn([-1, -1], 1.0), turn([-1], 0.5)), np.array([0.1, 0.2, -0.3]))
    assert [t.reward for t in found.turns] == pytest.approx([0.7, 0.8])


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_reinforce_pp_by_brute_force(gamma: float) -> None:
    one, two = trajectory(turn([-1, -1], 1.0), turn([-1], 0.5)), trajectory(turn([-1, -1], 0.0), group="h")
    penalties = [np.array([0.1, 0.2, -0.3]), np.array([0.4, 0.0])]
    rewards = [[-0.1, 1.0 - 0.2, 0.5 + 0.3], [-0.4, 0.0]]
    returns = [sum(gamma**k * r[t + k] for k in range(len(r) - t)) for r in rewards for t in range(len(r))]
    expected = (np.array(returns) - np.mean(returns)) / np.std(returns)
    found = ReinforcePPEstimator(gamma=gamma)([one, two], penalties)
    flat = np.concatenate([np.atleast_1d(a) for entry in found if entry is not None for a in entry])
    np.testing.assert_allclose(flat, expected, atol=1e-6)


def test_whole_update_of_reinforce_pp_counts_a_tokens_penalty_from_it_on() -> None:
    update = update_of("ReinforcePP", [trajectory(turn([-0.5, -2.0], 1.0)), trajectory(turn([-1.0], 0.0), member=1)])
    returns = np.array([1 - 0.5 * (0.5 - 1.0), 1 - 0.5 * -1.0, 0.0])
    expected = (returns - returns.mean()) / returns.std()
    assert update.batch is not None
    flat = np.concatenate([r.advantages[r.action_mask] for r in update.batch.rows])
    np.testing.assert_allclose(flat, expected, atol=1e-6)
    assert update.metrics["kl_to_reference"] == pytest.approx((0.5 - 1.0 + 0.0) / 3)


def test_whole_update_of_rloo_compares_penalised_returns() -> None:
    lost = trajectory(turn([-9.0], 5.0), member=2, invalid="session_lost")
    first, second = trajectory(turn([-0.5, -2.0], 1.0)), trajectory(turn([-0.6], 0.0), member=1)
    update = update_of("RLOO", [first, lost, second])
    returns = [1.0 - 0.5 * (0.5 - 1.0), 0.0 - 0.5 * 0.4]
    difference = pytest.approx(returns[0] - returns[1], abs=1e-6)
    assert update.advantages[0] == [difference] and update.advantages[1] is None
    assert update.advantages[2] == [pytest.approx(returns[1] - returns[0], abs=1e-6)]


def test_whole_update_of_a_critic_penalises_rows_across_segments() -> None:
    update = update_of("PPO_LLM", [trajectory(turn([-0.5, -2.0]), turn([-0.5], 1.0, segment=1))])
    assert update.batch is not None
    rewards = [row.rewards[row.action_mask].tolist() for row in update.batch.rows]
    assert rewards == [pytest.approx([-0.25, 0.5]), pytest.approx([0.75])]


def test_nothing_is_scored_where_the_coefficient_is_zero() -> None:
    no_learners: Any = None
    config = algorithm_class("RLOO").get_default_config().environment("bandit")
    collected = Collected(groups=[[trajectory(turn([-1.0], 1.0)), trajectory(turn([-1.0]), member=1)]], keep=[True])
    update = make_update(collected, config.sections(), iteration=1, learners=no_learners)
    assert update.advantages == [[1.0], [-1.0]] and "kl_to_reference" not in update.metrics


def test_the_groups_spread_must_not_blow_the_divergence_up() -> None:
    with pytest.raises(InputError, match="place it in the loss"):
        update_of("GRPO", [])


def test_dr_grpos_constant_is_the_most_an_episode_may_sample() -> None:
    config = algorithm_class("DrGRPO").get_default_config()
    sections = config.update_from_dict(
        {"env": "bandit", "rollout": {"max_turns": 5, "max_tokens_per_turn": 10}}
    ).sections()
    collected = Collected(groups=[[trajectory(turn([-1.0], 1.0)), trajectory(turn([-1.0]), member=1)]], keep=[True])
    batch = make_update(collected, sections, iteration=1, learners=LEARNERS).batch
    assert batch is not None
    assert batch.minibatches[0].weights.tolist() == [1 / (2 * 50)] * 2
