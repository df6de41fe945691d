"""What holds for any batch: order, shifts, scales, silent groups, finiteness."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib_agentic.advantages import Advantages, Estimator
from rllib_agentic.advantages.gigpo import GiGPOEstimator
from rllib_agentic.advantages.grpo import GRPOEstimator
from rllib_agentic.advantages.reinforce_pp import ReinforcePPEstimator
from rllib_agentic.advantages.rloo import RLOOEstimator
from rllib_agentic.advantages.whitening import moments_of, whiten
from rllib_agentic.filters.reward_variance import RewardVariance
from rllib_agentic.trajectory import FinishReason, Task, Trajectory, Turn

ESTIMATORS: list[Estimator] = [
    GRPOEstimator(),
    GRPOEstimator(scale="none"),
    RLOOEstimator(),
    ReinforcePPEstimator(gamma=0.9),
    ReinforcePPEstimator(baseline="group_mean"),
    GiGPOEstimator(),
    GiGPOEstimator(scale="std", ddof=0),
]
GROUP_RELATIVE = [e for e in ESTIMATORS if e != ReinforcePPEstimator(gamma=0.9)]
REWARD = st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0, -1.0, -0.1, 10.0]) | st.floats(-1e6, 1e6, allow_subnormal=False)
STATE = st.none() | st.sampled_from("st")


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    turns = []
    for i in range(draw(st.integers(1, 3))):
        n = draw(st.integers(1 if i == 0 else 0, 3))
        turns.append(
            Turn(
                context_ids=np.zeros(1, np.int32),
                action_ids=np.zeros(n, np.int32),
                logprobs=np.zeros(n, np.float32),
                policy_versions=np.zeros(n, np.int32),
                finish_reason=FinishReason.STOP,
                segment=0,
                text="",
                reward=draw(REWARD),
                state_key=draw(STATE),
            )
        )
    return Trajectory(
        Task("x", "train", 0),
        draw(st.sampled_from("abc")),
        0,
        (),
        tuple(turns),
        True,
        False,
        False,
        "end",
        draw(st.sampled_from([None, None, None, "lost"])),
    )


BATCH = st.lists(trajectories(), max_size=8)


def with_rewards(trajectory: Trajectory, change: float, factor: float) -> Trajectory:
    """The same trajectory with its first turn's reward shifted, then all rewards scaled."""
    turns = [
        Turn(
            **{name: getattr(turn, name) for name in Turn.__dataclass_fields__ if name != "reward"},
            reward=(turn.reward + (change if i == 0 else 0.0)) * factor,
        )
        for i, turn in enumerate(trajectory.turns)
    ]
    fields = {n: getattr(trajectory, n) for n in Trajectory.__dataclass_fields__ if n != "turns"}
    return Trajectory(**fields, turns=tuple(turns))


def flat(advantages: Sequence[Advantages | None]) -> list[list[float]]:
    return [[] if a is None else [float(x) for entry in a for x in np.ravel(entry)] for a in advantages]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@settings(deadline=None, max_examples=30)
@given(batch=BATCH, seed=st.integers(0, 9))
def test_order_does_not_matter_and_all_is_finite(estimator: Estimator, batch: list[Trajectory], seed: int) -> None:
    """AL18: bit for bit; invalid trajectories get None and change nothing."""
    expected = flat(estimator(batch))
    assert all(math.isfinite(x) for entries in expected for x in entries)
    order = random.Random(seed).sample(range(len(batch)), len(batch))
    shuffled = estimator([batch[i] for i in order])
    assert flat(shuffled) == [expected[i] for i in order]
    valid = [t for t in batch if t.invalid is None]
    assert flat(estimator(valid)) == [e for e, t in zip(expected, batch, strict=True) if t.invalid is None]
    assert [a is None for a in estimator(batch)] == [t.invalid is not None for t in batch]


@pytest.mark.parametrize("estimator", GROUP_RELATIVE)
@settings(deadline=None, max_examples=30)
@given(batch=BATCH)
def test_groups_without_spread_are_silent(estimator: Estimator, batch: list[Trajectory]) -> None:
    """AL01, AL02: one turn each, so that no anchor state adds a signal of its own."""
    single = [t for t in batch if len(t.turns) == 1 and t.invalid is None]
    for trajectory, entries in zip(single, flat(estimator(single)), strict=True):
        rewards = [t.total_reward for t in single if t.group_id == trajectory.group_id]
        if len(set(rewards)) == 1:
            assert not any(entries)


@pytest.mark.parametrize("estimator", [GRPOEstimator(), GRPOEstimator(scale="none"), RLOOEstimator()])
@settings(deadline=None, max_examples=30)
@given(
    rewards=st.lists(st.floats(-10, 10), min_size=2, max_size=8),
    shift=st.floats(-10, 10),
    factor=st.floats(0.1, 10),
)
def test_shift_and_scale(estimator: Estimator, rewards: list[float], shift: float, factor: float) -> None:
    """A shift of all rewards changes nothing; a factor goes through, or cancels where the std divides."""
    if np.ptp(rewards) < 0.1:
        return
    zero = np.zeros(1, np.int32)
    turns = [Turn(zero, zero, np.zeros(1, np.float32), zero, FinishReason.STOP, 0, "", reward=r) for r in rewards]
    batch = [Trajectory(Task("x", "t", 0), "g", 0, (), (t,), True, False, False, "end") for t in turns]
    before = np.ravel(flat(estimator(batch)))
    after = np.ravel(flat(estimator([with_rewards(t, shift, factor) for t in batch])))
    cancels = isinstance(estimator, GRPOEstimator) and estimator.scale == "std"
    assert after == pytest.approx(before * (1 if cancels else factor), abs=1e-3)
    assert before.sum() == pytest.approx(0, abs=1e-9)


@settings(deadline=None)
@given(
    values=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20),
    bits=st.integers(0, 2**20 - 1),
    junk=st.sampled_from([0.0, 1e30, math.nan, math.inf]),
)
def test_whitening_never_reads_outside_the_mask(values: list[float], bits: int, junk: float) -> None:
    mask = np.array([bool(bits >> i & 1) for i in range(len(values))])
    polluted = np.where(mask, values, junk)
    result = whiten(polluted, mask)
    assert not result[~mask].any()
    assert np.isfinite(result).all()
    assert result[mask].tolist() == whiten(np.array(values)[mask]).tolist()
    if not moments_of(np.array(values), mask).is_flat and moments_of(np.array(values), mask).std > 1e-3:
        assert result[mask].mean() == pytest.approx(0, abs=1e-6)
        assert result[mask].std() == pytest.approx(1, abs=1e-4)


@settings(deadline=None, max_examples=30)
@given(batch=BATCH, rule=st.sampled_from(["top_p", "fraction", "min_p", "threshold"]), seed=st.integers(0, 9))
def test_filters_do_not_depend_on_order(batch: list[Trajectory], rule: str, seed: int) -> None:
    groups = [[t for t in batch if t.group_id == name] for name in "abc"]
    groups = [g for g in groups if g]
    chosen = RewardVariance(rule=rule)  # type: ignore[arg-type]
    keep = chosen(groups).keep
    rng = random.Random(seed)
    order = rng.sample(range(len(groups)), len(groups))
    shuffled = chosen([rng.sample(groups[i], len(groups[i])) for i in order])
    assert shuffled.keep == [keep[i] for i in order]
    assert all(math.isfinite(v) for v in shuffled.metrics.values())
