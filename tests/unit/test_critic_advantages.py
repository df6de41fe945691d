"""GAE of three kinds, whitening, and the way from rows to targets and back, against brute-force definitions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from rllib_agentic.advantages import ESTIMATORS, CriticEstimator, Moments, ValuedActions, moments_of, targets_on_rows
from rllib_agentic.advantages.bi_level_gae import BiLevelGAEEstimator
from rllib_agentic.advantages.gae import GAEEstimator, gae
from rllib_agentic.advantages.step_gae import StepGAEEstimator
from rllib_agentic.advantages.whitening import whiten
from rllib_agentic.trajectory import FinishReason, Row, Task, Trajectory, Turn, rows_of

FACTORS = [0.9, 0.95, 1.0]


def row(
    mask: list[int],
    *,
    rewards: list[float] | None = None,
    turns: list[int] | None = None,
    last: bool = True,
    terminated: bool = True,
    trajectory: int = 0,
) -> Row:
    action_mask = np.array(mask, bool)
    n = len(mask)
    if turns is None:  # a new turn wherever sampling begins
        turns = (np.cumsum(np.diff([0, *mask]) == 1) - 1).tolist()
    return Row(
        token_ids=np.zeros(n, np.int32),
        action_mask=action_mask,
        logprobs=np.zeros(n, np.float32),
        turn_index=np.where(action_mask, turns, -1).astype(np.int32),
        policy_versions=np.where(action_mask, 0, -1).astype(np.int32),
        advantages=np.zeros(n, np.float32),
        rewards=np.array(rewards or [0.0] * n, np.float32),
        trajectory=trajectory,
        last=last,
        terminated=terminated,
    )


def before(values: list[float], at_end: float = 0.0) -> np.ndarray:
    """A critic's output whose prediction *before* token t is ``values[t]``: everything stands one to the left."""
    return np.array([*values[1:], at_end])


def brute_force(values: np.ndarray, rewards: np.ndarray, gamma: float, lam: float, end: float) -> np.ndarray:
    """Equation 16 as the sum it is: no recursion."""
    following = np.append(values[1:], end)
    delta = rewards + gamma * following - values
    n = len(values)
    return np.array([sum((gamma * lam) ** (u - t) * delta[u] for u in range(t, n)) for t in range(n)])


def test_observation_tokens_take_part_in_nothing() -> None:
    """AL07: wild values on observation tokens."""
    mask = [0, 1, 1, 0, 0, 0, 1, 1]
    rewards = [0, 0, 0, 0, 0, 0, 0, 1.0]
    values = before([0, 0.2, 0.3, 9.0, -7.0, 5.0, 0.4, 0.1])
    (targets,) = targets_on_rows(GAEEstimator(whiten=False), [row(mask, rewards=rewards)], [values])
    assert targets.advantages == pytest.approx([0, 0.8, 0.7, 0, 0, 0, 0.6, 0.9])
    assert targets.returns == pytest.approx([0, 1, 1, 0, 0, 0, 1, 1])
    assert targets.target_mask.tolist() == [bool(m) for m in mask]


@pytest.mark.parametrize(("gamma", "lam", "expected"), [(1.0, 1.0, [0.5, 0.75]), (0.0, 0.95, [-0.5, 0.75])])
@pytest.mark.parametrize("at", [2, 3, 4])
def test_a_reward_on_a_masked_token_counts_on_the_last_action(
    gamma: float, lam: float, expected: list[float], at: int
) -> None:
    """AL09: the episode ended with an observation, and the reward was written there."""
    rewards = [0.0] * 5
    rewards[at] = 1.0
    estimator = GAEEstimator(gamma=gamma, lam=lam, whiten=False)
    (targets,) = targets_on_rows(
        estimator, [row([0, 1, 1, 0, 0], rewards=rewards)], [before([0, 0.5, 0.25, 3.0, 3.0], 3.0)]
    )
    assert targets.advantages == pytest.approx([0, *expected, 0, 0])


def test_a_reward_before_the_first_action_is_not_lost() -> None:
    (targets,) = targets_on_rows(GAEEstimator(whiten=False), [row([0, 0, 1, 1], rewards=[0.5, 0, 0, 1])], [np.zeros(4)])
    assert targets.advantages == pytest.approx([0, 0, 1.5, 1.0])


@pytest.mark.parametrize(
    ("terminated", "expected"), [(True, [-0.473, -0.6]), (False, [0.1426, 0.12])], ids=["terminated", "truncated"]
)
def test_only_truncation_bootstraps(terminated: bool, expected: list[float]) -> None:
    """AL11: a terminated episode ignores the critic's value after its end, also where a limit was reached as well."""
    rows = [row([0, 1, 1], terminated=terminated)]
    estimator = GAEEstimator(gamma=0.9, lam=0.95, whiten=False)
    (targets,) = targets_on_rows(estimator, rows, [before([0, 0.5, 0.6], 0.8)])
    assert targets.advantages[1:] == pytest.approx(expected, abs=1e-6)


def test_padding_never_leaks() -> None:
    """AL12: whatever stands behind the last action of a terminated row, NaN included."""
    estimator = GAEEstimator(lam=0.95, whiten=False)
    for junk in (4.0, -1e9, float("nan")):
        values = before([junk, 0.1, 0.2, junk, junk], junk)
        (targets,) = targets_on_rows(estimator, [row([0, 1, 1, 0, 0], rewards=[0, 0, 1.0, 0, 0])], [values])
        assert targets.advantages == pytest.approx([0, 0.86, 0.8, 0, 0])


def test_the_baseline_of_an_action_is_predicted_before_it() -> None:
    """AL22: the critic answers with the position of the last token that it has read."""
    mask = [0, 0, 1, 1, 0, 0, 1]
    estimator = GAEEstimator(gamma=0.0, whiten=False)
    (targets,) = targets_on_rows(estimator, [row(mask)], [np.arange(7.0)])
    assert (-targets.advantages[np.array(mask, bool)]).tolist() == [1, 2, 5]


@pytest.mark.parametrize(("gamma", "lam"), list(product(FACTORS, FACTORS)))
@pytest.mark.parametrize("terminated", [True, False])
def test_gae_over_several_segments(gamma: float, lam: float, terminated: bool) -> None:
    """Rows of two trajectories, shuffled; masked tokens between turns; turns without reward; both kinds of ends."""
    rng = np.random.default_rng(7)
    rows = [
        row([0, 0, 1, 1, 0, 1], turns=[0, 0, 0, 0, 0, 1], last=False, terminated=terminated, trajectory=5),
        row([0, 1, 1, 0, 0, 1, 0], turns=[0, 2, 2, 0, 0, 3, 0], terminated=terminated, trajectory=5),
        row([0, 1, 1, 1], trajectory=8, rewards=[0, 0, 0, -1]),
    ]
    rows[1].rewards[5] = 1.0
    values = [rng.normal(size=len(r)) for r in rows]
    flat_values = np.concatenate([values[0][[1, 2, 4]], values[1][[0, 1, 4]]])
    flat_rewards = np.array([0, 0, 0, 0, 0, 1.0])
    end = 0.0 if terminated else values[1][-1]
    expected = brute_force(flat_values, flat_rewards, gamma, lam, end)

    estimator = GAEEstimator(gamma=gamma, lam=lam, whiten=False)
    second, other, opening = targets_on_rows(estimator, [rows[1], rows[2], rows[0]], [values[1], values[2], values[0]])
    got = np.concatenate([opening.advantages[[2, 3, 5]], second.advantages[[1, 2, 5]]])
    assert got == pytest.approx(expected, abs=1e-6)
    returns = np.concatenate([opening.returns[[2, 3, 5]], second.returns[[1, 2, 5]]])
    assert returns == pytest.approx(expected + flat_values, abs=1e-6)
    assert not opening.advantages[[0, 1, 4]].any()
    alone = brute_force(values[2][:3], np.array([0, 0, -1.0]), gamma, lam, 0.0)
    assert other.advantages[1:] == pytest.approx(alone, abs=1e-6)


def test_rows_without_the_end_of_their_trajectory_are_refused() -> None:
    with pytest.raises(ValueError, match="trajectory 3 hold its last turn"):
        targets_on_rows(GAEEstimator(), [row([0, 1], last=False, trajectory=3)], [np.zeros(2)])


def test_values_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="row of 2 tokens"):
        targets_on_rows(GAEEstimator(), [row([0, 1])], [np.zeros(3)])


def test_a_broken_critic_is_named() -> None:
    with pytest.raises(ValueError, match="critic"):
        targets_on_rows(GAEEstimator(), [row([0, 1])], [np.full(2, np.nan)])


def actions(turns: list[int], rewards: list[float], values: list[float], end: float | None = None) -> ValuedActions:
    return ValuedActions(
        np.array(values), np.array(rewards), np.array(turns), final_value=end or 0.0, terminated=end is None
    )


def test_step_gae_worked_example() -> None:
    one = actions([0, 0, 0, 1, 1], [0, 0, 0, 0, 1], [0.5, 7, 7, 0.6, 7])
    targets = StepGAEEstimator(gamma=0.9, lam=0.9).on_values(one)
    assert targets.advantages == pytest.approx([0.364, 0.364, 0.364, 0.4, 0.4])
    assert targets.returns[targets.target_mask] == pytest.approx([0.864, 1.0])
    assert targets.target_mask.tolist() == [True, False, False, True, False]


def test_bi_level_gae_worked_example() -> None:
    one = actions([0, 0, 1, 1], [0, 0, 0, 1], [0.2, 0.5, 0.4, 0.6])
    targets = BiLevelGAEEstimator(turn_gamma=0.9, turn_lam=1.0, gamma=1.0, lam=0.5).on_values(one)
    assert targets.advantages == pytest.approx([0.5, 0.4, 0.4, 0.4])
    assert targets.returns == pytest.approx([0.7, 0.9, 0.8, 1.0])


@pytest.mark.parametrize(("gamma", "lam"), list(product(FACTORS, FACTORS)))
@pytest.mark.parametrize("end", [None, 0.7])
@pytest.mark.parametrize("reward_every_turn", [True, False])
def test_step_and_bi_level_gae_against_the_definition(
    gamma: float, lam: float, end: float | None, reward_every_turn: bool
) -> None:
    """Turn numbers with gaps (a turn that sampled nothing), turns without reward, both kinds of ends."""
    rng = np.random.default_rng(11)
    turns = [0, 0, 0, 2, 3, 3, 6]
    rewards = np.zeros(7)
    rewards[[2, 3, 5, 6] if reward_every_turn else [6]] = [0.5, -1.0, 0.25, 2.0] if reward_every_turn else [1.0]
    values = rng.normal(size=7)
    one = actions(turns, rewards.tolist(), values.tolist(), end)
    edges = [(0, 3), (3, 4), (4, 6), (6, 7)]
    turn_rewards = np.array([rewards[a:z].sum() for a, z in edges])

    step = StepGAEEstimator(gamma=gamma, lam=lam).on_values(one)
    per_turn = brute_force(values[[0, 3, 4, 6]], turn_rewards, gamma, lam, end or 0.0)
    for (a, z), advantage in zip(edges, per_turn, strict=True):
        assert step.advantages[a:z] == pytest.approx(np.full(z - a, advantage), abs=1e-12)
        assert step.returns[a] == pytest.approx(advantage + values[a])

    bi_level = BiLevelGAEEstimator(turn_gamma=gamma, turn_lam=lam, gamma=0.9, lam=0.95).on_values(one)
    per_turn = brute_force(values[[2, 3, 5, 6]], turn_rewards, gamma, lam, end or 0.0)
    for (a, z), advantage in zip(edges, per_turn, strict=True):
        inside = np.zeros(z - a)
        inside[-1] = advantage + values[z - 1]
        expected = brute_force(values[a:z], inside, 0.9, 0.95, 0.0)
        assert bi_level.advantages[a:z] == pytest.approx(expected, abs=1e-12)
        assert bi_level.advantages[z - 1] == pytest.approx(advantage)
        assert bi_level.returns[a:z] == pytest.approx(expected + values[a:z], abs=1e-12)


@pytest.mark.parametrize("end", [None, 0.7])
def test_bi_level_gae_without_discounts_is_token_gae(end: float | None) -> None:
    rng = np.random.default_rng(2)
    one = actions([0, 0, 1, 1, 1, 2], [0, 0.5, 0, 0, 0, -1], rng.normal(size=6).tolist(), end)
    flat = GAEEstimator(gamma=1.0, lam=1.0).on_values(one)
    bi_level = BiLevelGAEEstimator(turn_gamma=1.0, turn_lam=1.0, gamma=1.0, lam=1.0).on_values(one)
    assert bi_level.advantages == pytest.approx(flat.advantages)


def test_step_gae_of_one_token_turns_is_token_gae() -> None:
    rng = np.random.default_rng(2)
    one = actions([0, 1, 2], rng.normal(size=3).tolist(), rng.normal(size=3).tolist(), 0.3)
    step = StepGAEEstimator(gamma=0.9, lam=0.95).on_values(one)
    token = GAEEstimator(gamma=0.9, lam=0.95).on_values(one)
    assert step.advantages == pytest.approx(token.advantages)


def test_gae_of_a_real_trajectory() -> None:
    """Turns, a zero-reward one among them, through rows_of: two segments, one of them without reward."""
    turns = tuple(
        Turn(
            context_ids=np.arange(3, dtype=np.int32),
            action_ids=np.arange(n, dtype=np.int32),
            logprobs=np.zeros(n, np.float32),
            policy_versions=np.zeros(n, np.int32),
            finish_reason=FinishReason.STOP,
            segment=segment,
            text="",
            reward=reward,
        )
        for n, segment, reward in [(2, 0, 0.0), (1, 0, 0.0), (2, 1, 1.0)]
    )
    trajectory = Trajectory(Task("x", "train", 0), "g", 0, (), turns, True, False, True, "terminated")
    rows = rows_of(trajectory, [0.0, 0.0, 0.0])
    targets = targets_on_rows(GAEEstimator(gamma=0.9, whiten=False), rows, [np.zeros(len(r)) for r in rows])
    got = np.concatenate([t.advantages[r.action_mask] for t, r in zip(targets, rows, strict=True)])
    assert got == pytest.approx([0.6561, 0.729, 0.81, 0.9, 1.0])


def test_whitening_reads_only_what_it_should() -> None:
    """AL27."""
    mask = np.array([True, True, False, False])
    assert whiten([1, 3, 100, -100], mask) == pytest.approx([-1, 1, 0, 0])
    assert whiten([5.0, 9.0], np.array([True, False])).tolist() == [0, 0]
    assert whiten([1, 3, np.nan, np.inf], mask) == pytest.approx([-1, 1, 0, 0])
    assert whiten([0.1 + 0.2, 0.3]).tolist() == [0, 0]
    assert whiten([1.0, 2.0], np.array([False, False])).tolist() == [0, 0]


def test_moments_merge_like_one_set() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(3, 2, size=n) for n in (1, 7, 0, 30)]
    merged = Moments()
    for part in parts:
        merged = merged.merge(moments_of(part))
    whole = np.concatenate(parts)
    assert merged.count == len(whole)
    assert merged.mean == pytest.approx(whole.mean())
    assert merged.std == pytest.approx(whole.std())
    assert (merged.low, merged.high) == (whole.min(), whole.max())


@pytest.mark.parametrize("name", ["gae", "bi_level_gae", "step_gae"])
def test_two_learners_whiten_like_one(name: str) -> None:
    rng = np.random.default_rng(1)
    estimator = ESTIMATORS.parse(name)
    assert isinstance(estimator, CriticEstimator)
    rows = [row([0, 1, 1, 0, 1], rewards=[0, 0, 0, 0, float(i % 3)], trajectory=i) for i in range(4)]
    values = [rng.normal(size=5) for _ in rows]
    together = targets_on_rows(estimator, rows, values)

    shares: list[Moments] = []

    def record(own: Moments) -> Moments:
        shares.append(own)
        return own

    for part in (slice(0, 1), slice(1, 4)):
        targets_on_rows(estimator, rows[part], values[part], record)
    merged = shares[0].merge(shares[1])
    apart = [
        target
        for part in (slice(0, 1), slice(1, 4))
        for target in targets_on_rows(estimator, rows[part], values[part], lambda own: merged)
    ]
    for a, b in zip(together, apart, strict=True):
        assert a.advantages == pytest.approx(b.advantages, abs=1e-6)
    units = np.concatenate([t.advantages[t.target_mask] for t in together])
    assert units.mean() == pytest.approx(0, abs=1e-6)
    assert units.std() == pytest.approx(1, abs=1e-6)


def test_whitening_over_turns_ignores_their_length() -> None:
    rows = [row([0, 1] + [1] * 20, rewards=[0.0] * 21 + [1.0]), row([0, 1], trajectory=1)]
    long, short = targets_on_rows(StepGAEEstimator(), rows, [np.zeros(22), np.zeros(2)])
    assert long.advantages[1:] == pytest.approx(np.ones(21))
    assert short.advantages[1] == pytest.approx(-1)


def test_no_rows_give_nothing() -> None:
    assert targets_on_rows(GAEEstimator(), [], []) == []


def test_gae_telescopes_at_lambda_one() -> None:
    """Independent of the recursion: with lambda 1 it is the discounted return minus the value."""
    rewards, values = np.array([1.0, 0.0, 2.0]), np.array([0.3, -0.2, 0.9])
    future = [sum(0.9 ** (u - t) * rewards[u] for u in range(t, 3)) for t in range(3)]
    assert gae(values, rewards, 0.9, 1.0) == pytest.approx(np.array(future) - values)
