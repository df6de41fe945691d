"""Filters: worked selections, raw rewards only, chains, metrics, bounded refilling."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from rllib_agentic.algorithms.collected import Collected
from rllib_agentic.errors import InputError
from rllib_agentic.filters import FILTERS, GroupFilter, KeptTasks, RefillAction, RefillSettings, apply_filters
from rllib_agentic.filters.overlong import Overlong
from rllib_agentic.filters.reward_variance import RewardVariance
from rllib_agentic.filters.scores import entropy, length, reward_std
from rllib_agentic.filters.selection import top_p
from rllib_agentic.filters.success_rate import SuccessRate
from rllib_agentic.trajectory import FinishReason, Task, Trajectory, Turn


def episode(
    reward: float,
    group: str = "g",
    *,
    logprobs: Sequence[float] = (0.0,),
    success: bool = False,
    truncated: bool = False,
    invalid: str | None = None,
) -> Trajectory:
    n = len(logprobs)
    turn = Turn(
        context_ids=np.arange(9, dtype=np.int32),
        action_ids=np.arange(n, dtype=np.int32),
        logprobs=np.array(logprobs, np.float32),
        policy_versions=np.zeros(n, np.int32),
        finish_reason=FinishReason.STOP,
        segment=0,
        text="",
        reward=reward,
    )
    return Trajectory(
        Task("bandit", "train", 0), group, 0, (), (turn,), not truncated, truncated, success, "end", invalid
    )


def groups_of(*rewards: Sequence[float]) -> list[list[Trajectory]]:
    return [[episode(r, f"g{i}") for r in group] for i, group in enumerate(rewards)]


def kept(chosen: GroupFilter, groups: list[list[Trajectory]]) -> list[int]:
    return [i for i, keep in enumerate(chosen(groups).keep) if keep]


STARPO_S = groups_of([1, 1], [0, 1], [0, 0.2], [0, 0.1])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"rule": "fraction", "fraction": 0.5}, [1, 2]),
        ({"rule": "fraction", "fraction": 0.25}, [1]),
        ({"rule": "fraction", "fraction": 1.0}, [1, 2, 3]),
        ({"rule": "fraction", "fraction": 1.0, "zero_variance": "include"}, [0, 1, 2, 3]),
        ({"rule": "top_p", "p": 0.9}, [1, 2]),
        ({"rule": "top_p", "p": 0.95}, [1, 2, 3]),
        ({"rule": "top_p", "p": 1.0}, [1, 2, 3]),
        ({"rule": "top_p", "p": 1.0, "zero_variance": "include"}, [0, 1, 2, 3]),
        ({"rule": "top_p", "p": 0.99999, "zero_variance": "include"}, [1, 2, 3]),
        ({"rule": "top_p", "p": 0.4, "form": "softmax"}, [1]),
        ({"rule": "top_p", "p": 0.5, "form": "softmax"}, [1, 2]),
        ({"rule": "top_k", "k": 1}, [1]),
        ({"rule": "top_k", "k": 99}, [1, 2, 3]),
        ({"rule": "top_k", "k": 1, "keep": "smallest"}, [3]),
        ({"rule": "min_p", "min_p": 0.15}, [1, 2]),
        ({"rule": "threshold", "threshold": 0.1}, [1, 2]),
        ({"rule": "threshold", "threshold": 0.1, "keep": "smallest"}, [3]),
        ({"rule": "threshold", "threshold": 0.1, "keep": "smallest", "zero_variance": "include"}, [0, 3]),
        ({"rule": "threshold"}, [1, 2, 3]),
    ],
)
def test_rules_on_the_worked_example(settings: dict, expected: list[int]) -> None:
    """Sample standard deviations 0, 0.707, 0.141, 0.071; softmax shares of the last three 0.47, 0.27, 0.25."""
    chosen = FILTERS.parse({"type": "reward_variance", **settings})
    assert isinstance(chosen, GroupFilter)
    assert kept(chosen, STARPO_S) == expected


def test_nothing_with_a_spread_keeps_nothing() -> None:
    """AL20: float noise is no spread."""
    groups = groups_of([1, 1, 1], [0, 0, 0], [0.30000000000000004, 0.3, 0.3])
    rules = [RewardVariance(), RewardVariance(rule="top_k", k=2), RewardVariance(rule="threshold")]
    for chosen in [*rules, RewardVariance(rule="min_p"), RewardVariance(form="softmax")]:
        result = chosen(groups)
        assert result.keep == [False] * 3
        assert result.metrics["kept_share"] == 0
        assert "kept_reward_mean" not in result.metrics
        assert all(math.isfinite(value) for value in result.metrics.values())


def test_each_group_is_judged_alone() -> None:
    """AL21: a batch with spread does not save a group without."""
    assert kept(RewardVariance(), groups_of([1, 1], [0, 1])) == [1]


def test_one_valid_trajectory_has_no_spread() -> None:
    group = [episode(1.0), episode(0.0, invalid="lost"), episode(float("nan"), invalid="lost")]
    assert reward_std(group) == 0.0
    assert kept(RewardVariance(rule="threshold"), [group]) == []


def test_a_group_without_valid_trajectories_is_never_kept() -> None:
    lost = [episode(1.0, invalid="lost"), episode(0.0, invalid="lost")]
    filters: list[GroupFilter] = [
        RewardVariance(zero_variance="include", p=1.0),
        RewardVariance(rule="threshold", threshold=-1, zero_variance="include"),
        SuccessRate(),
        Overlong(),
    ]
    for chosen in filters:
        assert chosen([lost]).keep == [False]
        assert chosen([]).keep == []


def test_a_reward_that_is_not_finite_is_refused() -> None:
    with pytest.raises(InputError, match="reward nan"):
        RewardVariance()(groups_of([0.0, float("nan")]))


def test_std_is_the_sample_standard_deviation() -> None:
    assert reward_std([episode(0.0), episode(4.0)]) == pytest.approx(np.std([0, 4], ddof=1))


def test_other_scores() -> None:
    """AL23: length counts sampled tokens, not the nine of the context."""
    short = [episode(0.0, "a", logprobs=[-0.5]), episode(1.0, "a", logprobs=[-1.5, -1.0])]
    long = [episode(0.0, "b", logprobs=[-0.1] * 4), episode(0.5, "b", logprobs=[-0.1] * 4)]
    assert (length(short), length(long)) == (1.5, 4.0)
    assert entropy(short) == pytest.approx(1.0)
    groups = [short, long]
    assert kept(RewardVariance(rule="top_k", k=1, score="length"), groups) == [1]
    assert kept(RewardVariance(rule="top_k", k=1, score="length", keep="smallest"), groups) == [0]
    assert kept(RewardVariance(rule="top_k", k=1, score="entropy"), groups) == [0]
    assert kept(RewardVariance(rule="threshold", threshold=0.3, score="reward_mean"), groups) == [0]


def test_ties_do_not_depend_on_the_order_of_groups_and_favour_no_task() -> None:
    groups = [[episode(r, f"task-{i:02d}") for r in (0, 1)] for i in range(40)]
    chosen = RewardVariance(rule="top_k", k=20)
    names = {g[0].group_id for g, keep in zip(groups, chosen(groups).keep, strict=True) if keep}
    for seed in range(3):
        shuffled = random.Random(seed).sample(groups, len(groups))
        assert {g[0].group_id for g, keep in zip(shuffled, chosen(shuffled).keep, strict=True) if keep} == names
    assert names != {f"task-{i:02d}" for i in range(20)}


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.999])
def test_top_p_linear_is_the_smallest_set_that_reaches_the_share(p: float) -> None:
    """By enumeration of all subsets."""
    rng = random.Random(5)
    for _ in range(30):
        scores = [rng.random() for _ in range(6)]
        order = sorted(range(6), key=lambda i: -scores[i])
        chosen = top_p(scores, order, p, "linear")
        sizes = [
            size
            for size in range(1, 7)
            for subset in combinations(scores, size)
            if sum(subset) >= p * sum(scores) * (1 - 1e-9)
        ]
        assert len(chosen) == min(sizes)
        assert sum(scores[i] for i in chosen) >= p * sum(scores) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rule": "top_k"}, "needs 'k'"),
        ({"rule": "top_k", "k": 2, "p": 0.9}, "'p' belongs to rule 'top_p'"),
        ({"rule": "fraction", "form": "softmax"}, "'form' belongs to rule 'top_p'"),
        ({"rule": "top_p", "keep": "smallest"}, "keeps the largest"),
        ({"rule": "top_p", "p": 1.5}, "less than or equal to 1"),
        ({"rule": "top_q"}, "top_p"),
        ({"ruel": "top_p"}, "Did you mean 'rule'"),
    ],
)
def test_bad_settings_are_explained(settings: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FILTERS.parse({"type": "reward_variance", **settings})


def test_resolved_settings_parse_again() -> None:
    chosen = RewardVariance(rule="top_k", k=8)
    assert FILTERS.parse({"type": "reward_variance", **chosen.model_dump()}) == chosen


def test_success_rate_keeps_the_middle() -> None:
    groups = [
        [episode(0, success=s) for s in (True, True)],
        [episode(0, success=s) for s in (True, False)],
        [episode(0, success=s) for s in (False, False)],
    ]
    assert kept(SuccessRate(), groups) == [1]
    assert kept(SuccessRate(above=0.5), groups) == []
    with pytest.raises(InputError, match="smaller"):
        FILTERS.parse({"type": "success_rate", "above": 0.5, "below": 0.5})


def test_overlong_drops_groups_that_were_mostly_cut() -> None:
    groups = [
        [episode(0, truncated=t) for t in (True, True, False)],
        [episode(0, truncated=t) for t in (True, False)],
    ]
    assert kept(Overlong(), groups) == [1]
    assert kept(Overlong(max_share=0.0), groups) == []


def test_filters_are_applied_in_order() -> None:
    """RAGEN-2's rule, then a cap: the second sees only what the first kept."""
    chain = [RewardVariance(p=0.9), RewardVariance(rule="fraction", fraction=0.5)]
    result = apply_filters(chain, STARPO_S)
    assert result.keep == [False, True, False, False]
    assert result.metrics["kept_share"] == 0.25
    assert result.metrics["0/kept_groups"] == 2
    assert result.metrics["1/groups"] == 2
    assert apply_filters([], STARPO_S).keep == [True] * 4
    alone = apply_filters(chain[:1], STARPO_S)
    assert alone == chain[0](STARPO_S)


def test_metrics_describe_kept_and_dropped() -> None:
    metrics = RewardVariance(rule="top_k", k=1)(STARPO_S).metrics
    assert metrics == {
        "groups": 4,
        "kept_groups": 1,
        "zero_variance_groups": 1,
        "kept_share": 0.25,
        "kept_reward_mean": 0.5,
        "kept_reward_variance": pytest.approx(0.5),
        "dropped_reward_mean": pytest.approx((1 + 0.1 + 0.05) / 3),
        "dropped_reward_variance": pytest.approx((0 + 0.02 + 0.005) / 3),
    }


def run(
    refill: RefillSettings, kept_per_draw: Sequence[int], wanted: int, empty: int = 0
) -> tuple[list[str], int, float]:
    """The actions of one iteration, the empty count after it, and the loss scale."""
    actions, total = [], 0
    for tries, new in enumerate(kept_per_draw, 1):
        total += new
        decision = refill.decide(kept=total, wanted=wanted, tries=tries, empty_iterations=empty)
        actions.append(decision.action.value)
        if decision.action is not RefillAction.DRAW:
            return actions, decision.empty_iterations, decision.loss_scale
        assert decision.draw == wanted - total
    raise AssertionError("asked for more draws than the test allows")


def test_refilling_is_bounded() -> None:
    """AL20: three tries, then the step is skipped."""
    assert run(RefillSettings(resample=True, max_tries=3), [0, 0, 0], 2) == (["draw", "draw", "skip"], 1, 1.0)


def test_refilling_until_full() -> None:
    assert run(RefillSettings(resample=True, max_tries=5), [1, 0, 1], 2) == (["draw", "draw", "train"], 0, 1.0)


def test_a_short_batch_is_trained_after_the_last_try() -> None:
    assert run(RefillSettings(resample=True, max_tries=2), [1, 0], 4) == (["draw", "train"], 0, 1.0)


@pytest.mark.parametrize(("scale", "expected"), [("none", 1.0), ("linear", 0.25), ("sqrt", 0.5)])
def test_a_shrunk_batch_scales_its_loss_on_request(scale: str, expected: float) -> None:
    assert run(RefillSettings(scale_loss=scale), [1], 4) == (["train"], 0, expected)  # type: ignore[arg-type]


def test_too_many_empty_iterations_stop_the_run() -> None:
    refill, empty, seen = RefillSettings(stop_after_empty=3), 0, []
    for kept_groups in (0, 0, 1, 0, 0, 0):
        actions, empty, _ = run(refill, [kept_groups], 4, empty)
        seen += actions
    assert seen == ["skip", "skip", "train", "skip", "skip", "stop"]
    assert run(RefillSettings(stop_after_empty=None), [0], 4, 1000)[0] == ["skip"]
    message = refill.decide(kept=0, wanted=4, tries=1, empty_iterations=2).message
    assert "3 iterations in a row" in message and "stop_after_empty" in message


def of_task(index: int, *rewards: float, invalid: str | None = None) -> list[Trajectory]:
    return [replace(episode(r, f"g{index}", invalid=invalid), task=Task("maze", "train", index)) for r in rewards]


def test_tasks_that_are_never_kept_are_counted_after_some_patience() -> None:
    counts = KeptTasks(patience=2)
    for iteration in range(3):
        groups = [of_task(0, 1, 1), of_task(1, 0, 1 - iteration % 2), of_task(2, 0, 0, invalid="lost")]
        counts.add(groups, RewardVariance()(groups).keep)
    assert counts.metrics() == {"tasks_seen": 2, "tasks_never_kept": 1}
    assert counts.never_kept == ["maze/train/0"]
    counts.add([of_task(3, 0, 0)], [False])
    assert counts.metrics() == {"tasks_seen": 3, "tasks_never_kept": 1}
    resumed = KeptTasks(patience=2)
    resumed.set_state(json.loads(json.dumps(counts.state())))
    resumed.add([of_task(3, 0, 0), of_task(0, 0, 1)], [False, True])
    assert resumed.never_kept == ["maze/train/3"]


def test_an_iterations_filter_metrics_are_over_all_its_tries() -> None:
    collected = Collected()
    for groups in (groups_of([1, 1], [0, 1]), groups_of([0, 0], [0, 0.5])):
        collected.add(groups, apply_filters([RewardVariance(rule="threshold")], groups), {"forwards": 2.0})
    found = collected.metrics
    assert (found["filter/groups"], found["filter/kept_groups"], found["filter/kept_share"]) == (4, 2, 0.5)
    assert found["filter/dropped_reward_mean"] == pytest.approx(0.5)
    assert (found["kept_group_frac"], found["sampling_tries"], found["engine/forwards"]) == (0.5, 2, 4.0)
