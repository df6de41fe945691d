from __future__ import annotations

import itertools
from collections import Counter

import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

from rllib_agentic.envs.baselines import expert_policy, random_policy, score
from rllib_agentic.errors import InputError
from serve_envs.frozenlake.env import FrozenLake
from serve_envs.frozenlake.expert import best_moves
from serve_envs.frozenlake.tasks import MOVES, Lake, make_splits
from serve_envs.frozenlake.view import describe, draw_map

GYMNASIUM_ACTION = {"Left": 0, "Down": 1, "Right": 2, "Up": 3}
COUNTS = (("train", 60), ("validation", 15), ("test", 25))


def test_walk_agrees_with_gymnasium_step_by_step() -> None:
    env = FrozenLake(train=30, validation=5, test=5)
    for index in range(30):
        first = env.reset("train", index, 0)
        rows = first.messages[1].content.split("\n")[:4]
        desc = [row.replace(" ", "").replace("A", "S" if number == 0 else "F") for number, row in enumerate(rows)]
        reference = FrozenLakeEnv(desc=desc, is_slippery=False)
        reference.reset(seed=0)
        for word in itertools.islice(itertools.cycle(("Right", "Down", "Left", "Down", "Right", "Up")), 12):
            cell, reward, terminated, _, _ = reference.step(GYMNASIUM_ACTION[word])
            result = env.step(word)
            assert (result.reward, result.terminated, result.success) == (reward, terminated, reward == 1)
            if terminated:
                break
            seen = "".join(result.observation.messages[0].content.split("\n")[:4]).replace(" ", "")
            assert seen.index("A") == cell


def test_slip_leads_to_each_side_as_often_as_gymnasium_says() -> None:
    lake = Lake(("SFFF", "FFFF", "FFFF", "FFFG"), (1, 1))
    reference = FrozenLakeEnv(desc=list(lake.rows), is_slippery=True)
    expected = {cell: 0.0 for _, cell, _, _ in reference.P[5][GYMNASIUM_ACTION["Up"]]}
    for probability, cell, _, _ in reference.P[5][GYMNASIUM_ACTION["Up"]]:
        expected[cell] += probability
    env = FrozenLake(slip=1 / 3, start="random", train=40, validation=4, test=4)
    env._splits = {"train": (lake,)}
    landed: Counter[int] = Counter()
    for seed in range(3000):
        env.reset("train", 0, seed)
        env.step("Up")
        landed[4 * env._cell[0] + env._cell[1]] += 1
    assert set(landed) == set(expected)
    for cell, probability in expected.items():
        assert landed[cell] / 3000 == pytest.approx(probability, abs=0.04)  # 4.6 standard errors


def test_no_map_is_in_two_splits_turned_or_mirrored() -> None:
    splits = make_splits(3, 0.8, "random", "random", COUNTS)
    shapes = {split: {_canonical(lake.rows) for lake in lakes} for split, lakes in splits.items()}
    for one, other in itertools.combinations(shapes.values(), 2):
        assert not one & other
    for split, count in COUNTS:
        assert len(set(splits[split])) == count


def _canonical(rows: tuple[str, ...]) -> tuple[str, ...]:
    forms = []
    for turned in (rows, tuple("".join(column) for column in zip(*rows, strict=True))):
        for _ in range(4):
            turned = tuple("".join(column) for column in zip(*reversed(turned), strict=True))
            forms.append(tuple(row.replace("S", "F") for row in turned))
    return min(forms)


def test_every_task_can_be_solved_and_starts_on_ice() -> None:
    for lakes in make_splits(4, 0.7, "random", "random", COUNTS).values():
        for lake in lakes:
            assert lake.square(lake.start) in ("S", "F")
            assert lake.distances()[lake.start] > 0


def test_too_many_tasks_for_a_small_lake_are_refused() -> None:
    with pytest.raises(InputError, match="not enough different tasks of size 2"):
        FrozenLake(size=2, train=10, validation=1, test=1)


@pytest.mark.parametrize(
    "arguments",
    [{"size": 1}, {"frozen_probability": 0.0}, {"slip": 0.6}, {"max_steps": 0}, {"train": -1}, {"show_map": "no"}],
)
def test_bad_arguments_name_themselves(arguments: dict) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        FrozenLake(**arguments)


def test_text_of_a_small_lake_by_hand() -> None:
    # S F H
    # F F F      the agent has come from S to the middle
    # H F G
    lake = Lake(("SFH", "FFF", "HFG"), (0, 0))
    assert draw_map(lake, (1, 1)) == "F F H\nF A F\nH F G"
    assert describe(lake, (1, 1), {(0, 0), (1, 0), (1, 1)}) == "Ice: Up, Down, Right. Goal: 1 down, 1 right."
    assert describe(lake, (1, 2), {(1, 2)}) == "Ice: Down, Left. Goal: 1 down."
    assert describe(lake, (0, 1), {(0, 0), (0, 1), (1, 1)}) == "Back: Down, Left. Goal: 2 down, 1 right."


def test_expert_solves_every_lake_on_a_shortest_way() -> None:
    env = FrozenLake(train=50, validation=10, test=50)
    for index in range(50):
        category = env.reset("test", index, 0).info["category"]
        steps = 0
        while not (result := env.step(env.expert_action())).terminated:
            steps += 1
        assert result.success
        assert category == f"{steps + 1} steps"


def test_expert_on_slippery_ice_turns_away_from_the_hole() -> None:
    # A stands beside H. Right falls in with 1/3, Up and Down slide to the right with 1/3, Left slides up or down only.
    lake = Lake(("SFF", "FFH", "FFG"), (1, 1))
    assert best_moves(lake, 0.0)[1, 1] == "Down"
    assert best_moves(lake, 1 / 3)[1, 1] == "Left"


def test_random_policy_is_far_from_the_expert() -> None:
    env = FrozenLake(size=3, start="random", corners="random", train=100, validation=10, test=40)
    assert score(env, random_policy(0), "test", max_turns=8, episodes=200).success < 0.4
    assert score(env, expert_policy, "test", max_turns=8).success == 1.0


def test_malformed_action_moves_nothing_and_is_counted() -> None:
    env = FrozenLake(train=5, validation=5, test=5)
    before = env.reset("train", 0, 0)
    result = env.step("fly")
    assert result.metrics == {"invalid_action": 1.0}
    assert result.observation.messages[0].content.endswith(before.messages[1].content)
    assert result.observation.state_key == before.state_key


def test_limit_truncates_and_step_after_the_end_is_refused() -> None:
    env = FrozenLake(max_steps=2, train=5, validation=5, test=5)
    env.reset("train", 0, 0)
    assert not env.step("Up").truncated
    result = env.step("Up")
    assert (result.terminated, result.truncated, result.success) == (False, True, False)
    with pytest.raises(RuntimeError, match="reset"):
        env.step("Up")


def test_actions_are_the_four_moves() -> None:
    assert FrozenLake(train=5, validation=5, test=5).reset("train", 0, 0).actions == tuple(MOVES)


def test_rewards_follow_the_schedule_and_success_does_not():
    env = FrozenLake(rewards=(2.0, -1.0, -0.1), max_steps=9)
    low, high = env.schema().reward_range
    seen = set()
    for index in range(20):
        env.reset("test", index, 0)
        total, result = 0.0, None
        while result is None or not (result.terminated or result.truncated):
            result = env.step(env.expert_action() if index % 2 else "Down")
            total += result.reward
            ended = {"You reached the goal.": 2.0, "You fell into a hole.": -1.0}
            expected = ended.get(result.observation.messages[0].content, -0.1)
            assert result.reward == expected and result.success == (expected == 2.0)
            seen.add(expected)
        assert low <= total <= high
    assert seen == {2.0, -1.0, -0.1} and (low, high) == (pytest.approx(-1.8), 2.0)
