from __future__ import annotations

import itertools

import pytest

from rllib_agentic.envs.baselines import expert_policy, random_policy, score
from rllib_agentic.errors import InputError
from serve_envs.bandit.env import Bandit
from serve_envs.bandit.tasks import RISKY_NAMES, SAFE_NAMES, make_splits


def test_tasks_are_pairs_of_names_and_no_pair_is_in_two_splits() -> None:
    splits = make_splits(1, 1)
    assert {split: len(tasks) for split, tasks in splits.items()} == {"train": 70, "validation": 10, "test": 20}
    pairs = {split: {frozenset(arms.names) for arms in tasks} for split, tasks in splits.items()}
    assert sum(len(group) for group in pairs.values()) == 100
    for one, other in itertools.combinations(pairs.values(), 2):
        assert not one & other


def test_risky_arms_stand_first_about_as_often_as_last() -> None:
    first = [arms.names[0] in arms.risky for tasks in make_splits(1, 1).values() for arms in tasks]
    assert 35 <= sum(first) <= 65


def test_safe_arm_pays_its_constant_and_risky_arm_its_chance() -> None:
    env = Bandit()
    paid = []
    for seed in range(4000):
        env.reset("train", 0, seed)
        paid.append(env.step(env.expert_action()).reward)
    assert set(paid) == {0.0, 1.0}
    assert sum(paid) / 4000 == pytest.approx(0.25, abs=0.03)  # 4.4 standard errors
    names = env.reset("train", 0, 0).actions or ()
    safe = next(name for name in names if name in SAFE_NAMES)
    result = env.step(safe)
    assert (result.reward, result.terminated, result.success) == (0.15, True, False)


def test_seed_decides_the_pay_and_not_the_text() -> None:
    env = Bandit()
    assert env.reset("test", 3, 0).messages == env.reset("test", 3, 99).messages


def test_several_arms_and_pulls() -> None:
    env = Bandit(safe_arms=3, risky_arms=2, pulls=3)
    names = env.reset("train", 0, 0).actions or ()
    assert len(names) == 5
    assert sum(name in RISKY_NAMES for name in names) == 2
    risky = env.expert_action()
    assert not env.step(risky).terminated
    assert env.step("Thought: again\nAction: " + risky.lower()).metrics == {"invalid_action": 0.0, "risky_arm": 1.0}
    last = env.step(risky)
    assert (last.terminated, last.success) == (True, True)


def test_unknown_arm_uses_up_the_pull() -> None:
    env = Bandit()
    env.reset("train", 0, 0)
    result = env.step("Casino")
    assert (result.reward, result.terminated, result.success) == (0.0, True, False)
    assert result.metrics["invalid_action"] == 1.0
    with pytest.raises(RuntimeError, match="reset"):
        env.step("Casino")


def test_expert_and_random_scores() -> None:
    env = Bandit()
    assert score(env, expert_policy, "test", 1).success == 1.0
    assert score(env, random_policy(0), "test", 1, episodes=400).success == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    "arguments", [{"safe_arms": 0}, {"risky_arms": 10}, {"low_reward": 0.3}, {"high_probability": 1.5}, {"pulls": 0}]
)
def test_bad_arguments_name_themselves(arguments: dict) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        Bandit(**arguments)
