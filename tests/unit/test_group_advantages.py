"""Advantages from raw rewards: worked numbers, groups, silent groups, invalid members, bad rewards."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from rllib_agentic.advantages import ESTIMATORS, CriticEstimator, Estimator, advantage_metrics
from rllib_agentic.advantages.gigpo import GiGPOEstimator
from rllib_agentic.advantages.grpo import GRPOEstimator
from rllib_agentic.advantages.reinforce_pp import ReinforcePPEstimator
from rllib_agentic.advantages.rloo import RLOOEstimator
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory import FinishReason, Task, Trajectory, Turn, rows_of

DR_GRPO = GRPOEstimator(scale="none")
GROUP_RELATIVE: list[Estimator] = [
    GRPOEstimator(),
    DR_GRPO,
    RLOOEstimator(),
    ReinforcePPEstimator(baseline="group_mean"),
    GiGPOEstimator(),
    GiGPOEstimator(scale="std"),
]


def episode(
    rewards: Sequence[float],
    group: str = "g",
    *,
    lengths: Sequence[int] | None = None,
    states: Sequence[str | None] | None = None,
    invalid: str | None = None,
    member: int = 0,
) -> Trajectory:
    """One turn a reward; ``lengths`` are the sampled tokens of each turn."""
    lengths = lengths or [1] * len(rewards)
    states = states or [None] * len(rewards)
    turns = tuple(
        Turn(
            context_ids=np.arange(2, dtype=np.int32),
            action_ids=np.arange(n, dtype=np.int32),
            logprobs=np.zeros(n, np.float32),
            policy_versions=np.zeros(n, np.int32),
            finish_reason=FinishReason.STOP,
            segment=0,
            text="",
            reward=reward,
            state_key=state,
        )
        for reward, n, state in zip(rewards, lengths, states, strict=True)
    )
    return Trajectory(Task("bandit", "train", 0), group, member, (), turns, True, False, False, "terminated", invalid)


def group_of(rewards: Sequence[float], group: str = "g") -> list[Trajectory]:
    return [episode([reward], group, member=i) for i, reward in enumerate(rewards)]


def first(estimator: Estimator, batch: Sequence[Trajectory]) -> list[float]:
    """The advantage of each trajectory's first sampled token."""
    return [float(np.ravel(a[0])[0]) for a in estimator(batch) if a is not None]


@pytest.mark.parametrize("estimator", GROUP_RELATIVE)
@pytest.mark.parametrize("rewards", [[0.7, 0.7, 0.7], [0.30000000000000004, 0.3], [0, 0, 0, 0], [5.0], [-1e6, -1e6]])
def test_equal_rewards_and_groups_of_one_give_exactly_zero(estimator: Estimator, rewards: list[float]) -> None:
    """AL01, AL02; other groups in the batch change nothing."""
    batch = group_of(rewards) + group_of([0.0, 1.0, 1.0], "other")
    assert first(estimator, batch)[: len(rewards)] == [0.0] * len(rewards)


def test_cancellation_noise_is_no_signal() -> None:
    """0.1 + 0.2 - 0.3 is not 0 when added up naively; nor is its spread a signal."""
    batch = [episode([0.1, 0.2, -0.3]), episode([0.0, 0.0, 0.0]), episode([0.3, -0.1, -0.2])]
    assert first(GRPOEstimator(), batch) == [0.0, 0.0, 0.0]


def test_a_small_real_difference_is_signal() -> None:
    assert first(DR_GRPO, group_of([0.001, 0.0])) == pytest.approx([0.0005, -0.0005])


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (DR_GRPO, [0.75, -0.25, -0.25, -0.25]),
        (GRPOEstimator(), [1.499997, -0.499999, -0.499999, -0.499999]),
        (GRPOEstimator(ddof=0), [1.732047, -0.577349, -0.577349, -0.577349]),
        (RLOOEstimator(), [1.0, -1 / 3, -1 / 3, -1 / 3]),
    ],
)
def test_one_winner_of_four(estimator: Estimator, expected: list[float]) -> None:
    """AL01: which standard deviation divides is part of the contract."""
    assert first(estimator, group_of([1, 0, 0, 0])) == pytest.approx(expected, abs=1e-6)


def test_invalid_members_leave_no_trace() -> None:
    """AL03."""
    batch = [*group_of([1.0, 3.0, 2.0]), episode([float("nan")], invalid="env_unreachable", member=3)]
    assert DR_GRPO(batch) == [[-1.0], [1.0], [0.0], None]


def test_groups_go_by_id_in_any_order() -> None:
    """AL18."""
    rows = list(zip("ababa", [1.0, 10.0, 2.0, 20.0, 3.0], [-1.0, -5.0, 0.0, 5.0, 1.0], strict=True))
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        batch = [episode([reward], group) for group, reward, _ in rows]
        assert first(DR_GRPO, batch) == [expected for _, _, expected in rows]


@pytest.mark.parametrize("estimator", [*GROUP_RELATIVE, ReinforcePPEstimator()])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_not_finite_is_refused_by_name(estimator: Estimator, bad: float) -> None:
    batch = [episode([1.0], "a"), episode([0.0, bad], "b", member=3)]
    with pytest.raises(InputError, match=r"turn 1 of member 3 of group 'b'.*(nan|inf)"):
        estimator(batch)


def test_every_token_of_a_trajectory_gets_its_total_reward() -> None:
    batch = [episode([0.5, 0.0, 0.5]), episode([0.0])]
    assert DR_GRPO(batch) == [[0.5, 0.5, 0.5], [-0.5]]


def test_reinforce_pp_against_the_definition() -> None:
    """AL10: the return crosses observation tokens unchanged; mean and std over sampled tokens of the whole batch."""
    batch = [episode([0.0, 1.0], "a", lengths=[2, 2]), episode([0.5], "b", lengths=[3])]
    returns = np.array([0.729, 0.81, 0.9, 1.0, 0.405, 0.45, 0.5])
    expected = (returns - returns.mean()) / returns.std()
    result = ReinforcePPEstimator(gamma=0.9)(batch)
    assert result[0] is not None and result[1] is not None
    assert [len(np.ravel(a)) for a in result[0]] == [2, 2]
    assert np.concatenate([*result[0], *result[1]]) == pytest.approx(expected, abs=1e-6)


def test_reinforce_pp_keeps_the_reward_of_a_turn_without_tokens() -> None:
    aborted = episode([0.25, 1.0], lengths=[2, 0])
    returns = ReinforcePPEstimator()([aborted, episode([0.0], "b", lengths=[2])])
    assert returns[0] is not None
    assert [np.shape(a) for a in returns[0]] == [(2,), (0,)]
    assert np.ravel(returns[0][0]) == pytest.approx([1.0, 1.0])


def test_the_reward_of_an_aborted_first_turn_goes_to_the_next_token() -> None:
    """With gamma 0 a token's return is its own reward."""
    aborted = episode([1.0, 0.0], lengths=[0, 2])
    result = ReinforcePPEstimator(gamma=0.0)([aborted])[0]
    assert result is not None
    assert np.ravel(result[1]) == pytest.approx([1.0, -1.0])


def test_reinforce_pp_worked_example_with_and_without_baseline() -> None:
    batch = [*group_of([1, 0], "a"), *group_of([1, 1], "b")]
    assert first(ReinforcePPEstimator(), batch) == pytest.approx([0.57735, -1.73205, 0.57735, 0.57735], abs=1e-5)
    with_baseline = first(ReinforcePPEstimator(baseline="group_mean"), batch)
    assert with_baseline == pytest.approx([1.41421, -1.41421, 0, 0], abs=1e-5)
    assert with_baseline[2:] == [0.0, 0.0]


def test_reinforce_pp_baseline_silences_flat_groups_although_the_batch_mean_is_not_zero() -> None:
    """A long winner pulls the token mean up; a group of equal rewards must not be punished for it."""
    batch = [
        episode([1.0], "a", lengths=[9]),
        episode([0.0], "a"),
        *group_of([1, 1], "b"),
    ]
    advantages = first(ReinforcePPEstimator(baseline="group_mean"), batch)
    assert advantages[2:] == [0.0, 0.0]
    assert advantages[0] > 0 > advantages[1]


def test_reinforce_pp_refuses_a_discount_that_its_baseline_ignores() -> None:
    with pytest.raises(InputError, match="gamma"):
        ESTIMATORS.parse({"type": "reinforce_pp", "baseline": "group_mean", "gamma": 0.9})


def test_gigpo_worked_example() -> None:
    batch = [episode([0, 1], states=["s", "a"]), episode([0, 0, 0], states=["s", "a", "b"])]
    assert GiGPOEstimator(gamma=0.5)(batch) == [[0.75, 1.0], [-0.75, -1.0, -0.5]]


def test_gigpo_without_keys_is_the_episode_advantage() -> None:
    batch = [episode([0, 1]), episode([0, 0, 0])]
    assert GiGPOEstimator(step_weight=7.0)(batch) == [[0.5, 0.5], [-0.5, -0.5, -0.5]]


def test_a_turn_without_tokens_is_no_choice_at_its_anchor() -> None:
    batch = [episode([0, 1], states=["s", "a"], lengths=[1, 1]), episode([0, 0], states=["s", "a"], lengths=[1, 0])]
    assert GiGPOEstimator(gamma=1.0)(batch) == [[1.0, 0.5], [-1.0, -0.5]]


def test_gigpo_anchors_do_not_cross_groups() -> None:
    batch = [episode([1.0], "a", states=["s"]), episode([0.0], "b", states=["s"])]
    assert GiGPOEstimator()(batch) == [[0.0], [0.0]]


def test_gigpo_against_brute_force() -> None:
    rng = random.Random(3)
    batch = []
    for group in "abc":
        for _ in range(4):
            n = rng.randint(1, 5)
            rewards = [rng.choice([0.0, 0.0, 1.0, -0.5]) for _ in range(n)]
            batch.append(episode(rewards, group, states=[rng.choice(["s", "t", "u", None]) for _ in range(n)]))
    result = GiGPOEstimator(gamma=0.9, step_weight=0.5, scale="std", epsilon=0.0)(batch)

    def normalised(value: float, peers: list[float]) -> float:
        return (
            float((value - np.mean(peers)) / np.std(peers, ddof=1)) if len(peers) > 1 and np.ptp(peers) > 1e-9 else 0.0
        )

    def future(trajectory: Trajectory, t: int) -> float:
        return sum(0.9**k * turn.reward for k, turn in enumerate(trajectory.turns[t:]))

    for trajectory, advantages in zip(batch, result, strict=True):
        siblings = [other for other in batch if other.group_id == trajectory.group_id]
        episode_part = normalised(trajectory.total_reward, [s.total_reward for s in siblings])
        assert advantages is not None
        for t, turn in enumerate(trajectory.turns):
            peers = [
                future(s, u) for s in siblings for u, other in enumerate(s.turns) if other.state_key == turn.state_key
            ]
            step_part = normalised(future(trajectory, t), peers) if turn.state_key is not None else 0.0
            assert advantages[t] == pytest.approx(episode_part + 0.5 * step_part, abs=1e-12)


def test_advantages_fit_rows_of() -> None:
    trajectory = episode([0.0, 1.0], lengths=[3, 2])
    for name in ("grpo", "rloo", "reinforce_pp", "gigpo"):
        estimator = ESTIMATORS.parse(name)
        assert isinstance(estimator, Estimator)
        advantages = estimator([trajectory, episode([0.0])])[0]
        assert advantages is not None
        (row,) = rows_of(trajectory, advantages)
        assert row.advantages[row.action_mask].all() and not row.advantages[~row.action_mask].any()


def test_metrics_count_silent_groups() -> None:
    """AL02: groups of one are counted."""
    batch = [
        *group_of([5.0], "one"),
        *group_of([1, 1], "flat"),
        *group_of([0, 1], "live"),
        episode([1.0], "gone", invalid="lost"),
    ]
    metrics = advantage_metrics(batch, DR_GRPO(batch))
    assert metrics == {
        "groups": 3,
        "singleton_groups": 1,
        "zero_groups": 2,
        "zero_group_share": pytest.approx(2 / 3),
        "abs_mean": pytest.approx(0.2),
        "min": -0.5,
        "max": 0.5,
    }


def test_types_are_those_of_the_family() -> None:
    for name in ESTIMATORS:
        estimator = ESTIMATORS.parse(name)
        assert getattr(estimator, "type") == name  # noqa: B009
        assert isinstance(estimator, Estimator) != isinstance(estimator, CriticEstimator)


def test_nothing_valid_is_no_crash() -> None:
    batch = [episode([1.0], invalid="lost")]
    for estimator in [*GROUP_RELATIVE, ReinforcePPEstimator()]:
        assert estimator(batch) == [None]
        assert estimator([]) == []
    assert advantage_metrics(batch, [None]) == {"groups": 0, "singleton_groups": 0, "zero_groups": 0}
