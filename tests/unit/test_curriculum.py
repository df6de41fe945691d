"""Interaction budgets by stage, and the stream of tasks."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from rllib_agentic.curriculum import CURRICULA, Curriculum, TaskSampler
from rllib_agentic.curriculum.adaptive import AdaptiveCurriculum
from rllib_agentic.curriculum.fixed import FixedCurriculum
from rllib_agentic.curriculum.scaling_inter import ScalingInterCurriculum
from rllib_agentic.errors import InputError


def budgets(curriculum: Curriculum, successes: list[float | None]) -> list[int]:
    """The budget of every iteration."""
    state, seen = curriculum.initial_state(), []
    for iteration, success in enumerate(successes, 1):
        seen.append(curriculum.budget(state, 7))
        state = curriculum.advance(json.loads(json.dumps(dict(state))), iteration, success)
    return seen


def test_fixed() -> None:
    assert budgets(FixedCurriculum(), [1.0] * 3) == [7, 7, 7]
    assert budgets(FixedCurriculum(max_turns=15), [None] * 2) == [15, 15]


def published_rule(max_turns: list[int], every: int, iterations: int) -> list[int]:
    """The counter as AgentGym-RL keeps it: it starts at 1, and is looked at after every step."""
    counter, stage, seen = 1, 0, []
    for _ in range(iterations):
        seen.append(max_turns[stage])
        if stage + 1 < len(max_turns) and counter % every == 0:
            stage += 1
        counter += 1
    return seen


@pytest.mark.parametrize(
    ("max_turns", "every"), [([8, 12, 15], 80), ([5, 8, 10], 100), ([10, 20, 30], 100), ([6, 13, 20], 100), ([3], 1)]
)
def test_scaling_inter_follows_the_published_rule(max_turns: list[int], every: int) -> None:
    curriculum = CURRICULA.parse({"type": "scaling_inter", "max_turns": max_turns, "every": every})
    assert isinstance(curriculum, ScalingInterCurriculum)
    seen = budgets(curriculum, [None] * 350)
    assert seen == published_rule(max_turns, every, 350)
    for done in (0, 1, every - 1, every, every + 1, 2 * every, 349):  # the resume rule
        assert curriculum.budget(curriculum.state_after(done), 0) == seen[done] if done < 350 else max_turns[-1]
        assert curriculum.state_after(done)["stage"] == min(done // every, len(max_turns) - 1)


def test_a_resumed_adaptive_run_goes_on_exactly() -> None:
    curriculum = AdaptiveCurriculum(max_turns=(1, 2, 3), patience=2, min_iterations=2)
    successes: list[float | None] = [0.9, 0.1, 0.9, None, 0.79, 0.9, 0.2, 0.8, 0.8]
    state = curriculum.initial_state()
    for iteration, success in enumerate(successes, 1):
        again = curriculum.initial_state()
        for i, past in enumerate(successes[: iteration - 1], 1):
            again = curriculum.advance(again, i, past)
        assert again == state
        state = curriculum.advance(state, iteration, success)


@pytest.mark.parametrize(
    ("successes", "expected"),
    [
        ([0.9, 0.9, 0.9, 0.9], [10, 10, 10, 20]),  # never before min_iterations
        ([0.0, 0.0, 0.0, 0.0, 0.9, 0.9, 0.9], [10] * 6 + [20]),
        ([0.9, 0.78, 0.78, 0.9, 0.9], [10] * 4 + [20]),  # inside the band: neither counts nor resets
        ([0.9, 0.74, 0.9, 0.9, 0.9], [10] * 4 + [20]),  # below the band: anew
        ([0.9, None, None, 0.9, 0.9], [10] * 4 + [20]),  # nothing observed
        ([0.8, 0.8, 0.8, 0.8], [10, 10, 10, 20]),  # the threshold itself counts
        ([0.79] * 6, [10] * 6),
        ([1.0] * 12, [10] * 3 + [20] * 3 + [30] * 6),  # the last stage stays
        ([1.0] * 3 + [0.0] * 4, [10] * 3 + [20] * 4),  # no way back
    ],
)
def test_adaptive(successes: list[float | None], expected: list[int]) -> None:
    patience = 3 if successes == [1.0] * 12 else 2
    curriculum = AdaptiveCurriculum(max_turns=(10, 20, 30), patience=patience, min_iterations=3)
    assert budgets(curriculum, successes) == expected


@pytest.mark.parametrize("max_turns", [[], [0, 5], [10, 10], [20, 10], "ten"])
def test_budgets_must_grow(max_turns: object) -> None:
    for name in ("scaling_inter", "adaptive"):
        with pytest.raises(InputError, match=r"curriculum\.max_turns"):
            CURRICULA.parse({"type": name, "max_turns": max_turns})


def test_every_curriculum_keeps_the_contract() -> None:
    for name in CURRICULA:
        curriculum = CURRICULA.parse({"type": name} | ({} if name == "fixed" else {"max_turns": [1, 2]}))
        assert isinstance(curriculum, Curriculum)
        assert curriculum.initial_state()["stage"] == 0


def sampler(seed: int = 0, num_tasks: int = 10) -> TaskSampler:
    return TaskSampler(env="bandit", split="train", num_tasks=num_tasks, seed=seed)


def test_every_task_once_an_epoch_across_draws() -> None:
    stream = sampler()
    indices = [task.index for _ in range(10) for task in stream.draw(4)]
    for epoch in range(4):
        assert sorted(indices[10 * epoch : 10 * (epoch + 1)]) == list(range(10))
    assert indices[:10] != indices[10:20]


def test_the_stream_depends_on_seed_and_position_alone() -> None:
    one, other = sampler(), sampler()
    assert one.draw(7) + one.draw(16) == other.draw(23)
    assert sampler(seed=1).draw(10) != sampler().draw(10)
    assert {task.index for task in sampler(num_tasks=1).draw(3)} == {0}


def test_a_resumed_stream_goes_on_exactly() -> None:
    stream = sampler()
    stream.draw(13)
    state = json.loads(json.dumps(stream.state()))
    expected = stream.draw(20)
    resumed = sampler()
    resumed.set_state(state)
    assert resumed.draw(20) == expected


def test_environment_seeds_are_new_each_time() -> None:
    tasks = sampler().draw(50)
    assert len({task.seed for task in tasks}) == 50
    assert Counter(task.index for task in tasks) == dict.fromkeys(range(10), 5)


def test_an_empty_split_is_refused() -> None:
    with pytest.raises(InputError, match="'train' of 'bandit' has 0 tasks"):
        sampler(num_tasks=0)
