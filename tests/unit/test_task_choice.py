"""Which tasks are played: by success, and from several environments at once."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from scipy.stats import beta

from rllib_agentic.curriculum import TASK_SAMPLERS, Budgets, Curriculum, TaskMixture, TaskSampler
from rllib_agentic.curriculum.adaptive import AdaptiveCurriculum
from rllib_agentic.curriculum.by_success import SuccessSampler
from rllib_agentic.curriculum.fixed import FixedCurriculum
from rllib_agentic.curriculum.scaling_inter import ScalingInterCurriculum
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory import Task, Trajectory


def episode(task: Task, success: bool, invalid: str | None = "x") -> Trajectory:
    """An episode of which only the outcome matters; ``invalid`` None would ask for turns."""
    from dataclasses import replace

    from synthetic_policy import START, TablePolicy

    made = replace(TablePolicy(START).episode(0, 0), task=task, success=success)
    return replace(made, invalid=invalid, terminated=False, success=False) if invalid else made


def outcome(task: Task, solved: int, failed: int) -> list[Trajectory]:
    return [episode(task, True, None)] * solved + [episode(task, False, None)] * failed


def sampler(num_tasks: int = 20, **settings: float) -> SuccessSampler:
    return SuccessSampler(env="maze", split="train", num_tasks=num_tasks, seed=7, **settings)


def task(index: int, env: str = "maze", split: str = "train") -> Task:
    return Task(env, split, index)


def test_a_tasks_weight_is_the_expected_variance_of_its_outcome() -> None:
    made = sampler(floor=1e-9)
    made.observe([outcome(task(0), 4, 4), outcome(task(1), 8, 0), outcome(task(2), 0, 8), outcome(task(3), 7, 1)])
    weights = made.weights()
    for index, (a, b) in {0: (5, 5), 1: (9, 1), 2: (1, 9), 3: (8, 2), 4: (1, 1)}.items():
        p = np.linspace(0, 1, 20_001)
        expected = np.trapezoid(p * (1 - p) * beta.pdf(p, a, b), p)
        assert weights[index] == pytest.approx(expected, rel=1e-4)
    assert weights[0] > weights[4] > weights[3] > weights[1] == pytest.approx(weights[2])


def test_draws_follow_the_weights() -> None:
    made = sampler(num_tasks=4)
    made.observe([outcome(task(0), 16, 16), outcome(task(1), 32, 0), outcome(task(2), 0, 32)])
    counts = Counter(made.draw(1)[0].index for _ in range(4000))
    expected = made.weights() / made.weights().sum()
    for index in range(4):
        error = np.sqrt(expected[index] * (1 - expected[index]) / 4000)
        assert abs(counts[index] / 4000 - expected[index]) < 4 * error


def test_what_was_seen_long_ago_counts_less() -> None:
    made = sampler(half_life=5)
    made.observe([outcome(task(0), 8, 0)])
    fresh = made.weights()[0]
    for _ in range(5):
        made.observe([])
    a, b = 1 + 4.0, 1.0  # half of the eight
    assert made.weights()[0] - 0.1 / 6 == pytest.approx(a * b / ((a + b) * (a + b + 1)))
    for _ in range(200):
        made.observe([])
    assert fresh < made.weights()[0] == pytest.approx(made.weights()[1], rel=1e-6)


def test_a_draw_holds_no_task_twice_until_all_are_in_it() -> None:
    made = sampler(num_tasks=6)
    assert sorted(t.index for t in made.draw(6)) == list(range(6))
    assert Counter(t.index for t in made.draw(15)).most_common()[0][1] == 3
    seeds = [t.seed for _ in range(5) for t in made.draw(4)]
    assert len(set(seeds)) == 20


def test_a_resumed_sampler_goes_on_exactly() -> None:
    one = sampler()
    for iteration in range(4):
        one.observe([outcome(t, iteration, 2) for t in one.draw(5)])
    other = sampler()
    other.set_state(json.loads(json.dumps(one.state())))
    for _ in range(3):
        drawn = one.draw(5)
        assert drawn == other.draw(5)
        for s in (one, other):
            s.observe([outcome(t, 1, 1) for t in drawn])
    np.testing.assert_array_equal(one.weights(), other.weights())
    assert sampler().draw(5) != SuccessSampler(env="maze", split="train", num_tasks=20, seed=8).draw(5)


def test_invalid_episodes_and_other_tasks_are_no_evidence() -> None:
    made = sampler()
    made.observe(
        [[episode(task(0), True, "lost")], outcome(task(1, "shop"), 1, 1), outcome(task(2, split="test"), 1, 1), []]
    )
    assert made.metrics() == {"seen_share": 0.0}
    made.observe([outcome(task(0), 30, 0), outcome(task(1), 0, 30), outcome(task(2), 1, 1)])
    assert made.metrics() == pytest.approx(
        {"seen_share": 0.15, "difficulty": 0.5, "mastered": 1 / 3, "hopeless": 1 / 3}
    )


def test_every_sampler_of_the_family_keeps_the_contract() -> None:
    for name in TASK_SAMPLERS:
        made = TASK_SAMPLERS.parse(name).make(env="maze", split="train", num_tasks=5, seed=1)
        drawn = made.draw(7)
        assert len(drawn) == 7 and all(t.env == "maze" and 0 <= t.index < 5 for t in drawn)
        made.observe([outcome(t, 1, 1) for t in drawn])
        again = TASK_SAMPLERS.parse(name).make(env="maze", split="train", num_tasks=5, seed=1)
        again.set_state(json.loads(json.dumps(made.state())))
        assert again.draw(4) == made.draw(4) and all(np.isfinite(v) for v in made.metrics().values())
        with pytest.raises(InputError, match="0 tasks"):
            TASK_SAMPLERS.parse(name).make(env="maze", split="train", num_tasks=0, seed=1)


# --- several environments --------------------------------------------------------------------------------------------


def mixture(**weights: float) -> TaskMixture:
    return TaskMixture({env: TaskSampler(env=env, split="train", num_tasks=9, seed=0) for env in weights}, weights)


def test_shares_hold_to_within_one_task_after_every_draw() -> None:
    weights = {"a": 5.0, "b": 2.0, "c": 0.7}
    made, counts = mixture(**weights), Counter[str]()
    for number in range(1, 200):
        counts[made.draw(1)[0].env] += 1
        for env, weight in weights.items():
            assert abs(counts[env] - number * weight / 7.7) < 1 + 1e-9


def test_each_environment_has_its_own_stream_whatever_the_draws() -> None:
    one, other = mixture(a=1, b=1), mixture(a=1, b=1)
    assert one.draw(3) + one.draw(5) == other.draw(8)
    alone = TaskSampler(env="a", split="train", num_tasks=9, seed=0)
    assert [t for t in mixture(a=1, b=3).draw(16) if t.env == "a"] == alone.draw(4)
    assert mixture(a=1).draw(4) == TaskSampler(env="a", split="train", num_tasks=9, seed=0).draw(4)


def test_a_resumed_mixture_goes_on_exactly_and_observes_by_environment() -> None:
    def made() -> TaskMixture:
        samplers = {env: SuccessSampler(env=env, split="train", num_tasks=9, seed=0) for env in ("a", "b")}
        return TaskMixture(samplers, {"a": 1, "b": 2})

    one = made()
    one.observe([outcome(t, 3, 1) for t in one.draw(7)])
    other = made()
    other.set_state(json.loads(json.dumps(one.state())))
    assert one.draw(7) == other.draw(7)
    assert {name.partition("/")[0] for name in one.metrics()} == {"a", "b"}
    assert one.metrics()["a/seen_share"] == pytest.approx(2 / 9)  # 7 draws: 2 and 5
    assert "seen_share" in mixture_of_one().metrics()


def mixture_of_one() -> TaskMixture:
    return TaskMixture({"a": SuccessSampler(env="a", split="train", num_tasks=9, seed=0)}, {"a": 1.0})


def test_each_environment_has_its_own_budget_and_hears_of_its_own_success() -> None:
    curricula: dict[str, Curriculum] = {
        "fixed": FixedCurriculum(),
        "stages": ScalingInterCurriculum(max_turns=(2, 4), every=2),
        "train": AdaptiveCurriculum(max_turns=(3, 6), min_iterations=1, patience=1),
        "held": AdaptiveCurriculum(max_turns=(3, 6), min_iterations=1, patience=1, watch="evaluation"),
    }
    budgets = Budgets(curricula, default=9)
    assert [budgets[env] for env in curricula] == [9, 2, 3, 3] and budgets.watches_evaluation
    changes = budgets.advance(1, {"train": 0.2, "held": 1.0}, {"train": 1.0})
    assert changes == []
    changes = budgets.advance(2, {"train": 0.9}, {"held": 0.9})
    assert [(c.env, c.before, c.after, c.stage) for c in changes] == [
        ("stages", 2, 4, 1), ("train", 3, 6, 1), ("held", 3, 6, 1)
    ]  # fmt: skip
    assert str(changes[0]) == "stages: the interaction budget grows from 2 to 4 turns (stage 1)"
    again = Budgets(curricula, default=9)
    again.set_state(json.loads(json.dumps(budgets.state())), 2)
    assert again.metrics() == budgets.metrics() and again.metrics()["held/max_turns"] == 6.0
    alone: dict[str, Curriculum] = {"maze": FixedCurriculum()}
    assert Budgets(alone, 5).metrics() == {"max_turns": 5.0, "stage": 0.0}


def test_a_run_that_goes_on_from_one_with_another_curriculum_begins_that_curriculum() -> None:
    kinds: dict[str, Curriculum] = {
        "fixed": FixedCurriculum(),
        "stages": ScalingInterCurriculum(max_turns=(2, 4, 6), every=5),
        "adaptive": AdaptiveCurriculum(max_turns=(3, 6, 9), min_iterations=1, patience=1),
        "shorter": AdaptiveCurriculum(max_turns=(3, 6), min_iterations=1, patience=1),
    }
    expected = {  # after seven iterations, each solved
        "fixed": {"fixed": 8, "stages": 4, "adaptive": 3, "shorter": 3},
        "stages": {"fixed": 8, "stages": 4, "adaptive": 3, "shorter": 3},
        "adaptive": {"fixed": 8, "stages": 4, "adaptive": 9, "shorter": 6},
        "shorter": {"fixed": 8, "stages": 4, "adaptive": 6, "shorter": 6},
    }
    for before, after_by_kind in expected.items():
        first = Budgets({"maze": kinds[before]}, default=8)
        for iteration in range(1, 8):
            first.advance(iteration, {"maze": 1.0}, {})
        for after, budget in after_by_kind.items():
            second = Budgets({"maze": kinds[after]}, default=8)
            second.set_state(json.loads(json.dumps(first.state())), 7)
            assert second["maze"] == budget, (before, after)
            second.advance(8, {"maze": 0.0}, {})


def test_tasks_chosen_by_success_go_on_from_a_run_that_chose_them_uniformly() -> None:
    uniform = TASK_SAMPLERS.parse("uniform").make(env="a", split="train", num_tasks=9, seed=0)
    uniform.draw(4)
    chosen = TASK_SAMPLERS.parse("by_success").make(env="a", split="train", num_tasks=9, seed=0)
    chosen.set_state(uniform.state())
    assert chosen.metrics() == {"seen_share": 0.0} and len(chosen.draw(3)) == 3 and chosen.state()["drawn"] == 7
    uniform.set_state(chosen.state())
    assert uniform.state() == {"drawn": 7}
