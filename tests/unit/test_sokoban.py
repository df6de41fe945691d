from __future__ import annotations

import random
from collections import deque

import pytest

from rllib_agentic.envs.baselines import expert_policy, random_policy, score
from rllib_agentic.errors import InputError
from serve_envs.grid import MOVES
from serve_envs.sokoban.env import Sokoban
from serve_envs.sokoban.pulling import pull_off
from serve_envs.sokoban.room import Position, read_room
from serve_envs.sokoban.solver import push_distances, solve

SMALL = {"train": 20, "validation": 5, "test": 10}


def test_rules_by_hand() -> None:
    room, start = read_room(("######", "#_PXO#", "#__#_#", "######"))
    assert room.move(start, "Up") == start
    assert room.move(start, "Left") == Position((1, 1), frozenset({(1, 3)}))
    pushed = room.move(start, "Right")
    assert pushed == Position((1, 3), frozenset({(1, 4)}))
    assert room.solved(pushed)
    assert room.draw(pushed) == ("######", "#__PV#", "#__#_#", "######")
    assert room.move(pushed, "Right") == pushed  # a wall behind the box


def test_a_box_is_not_pushed_into_another() -> None:
    room, start = read_room(("######", "#PXXO#", "#__O_#", "######"))
    assert room.move(start, "Right") == start


def test_solver_finds_no_more_moves_than_exhaustive_search_on_text() -> None:
    """The oracle is a search of its own, on maps as texts and with rules of its own."""
    for kwargs in ({"size": 6, "boxes": 1}, {"size": 6, "boxes": 2}):
        env = Sokoban(**kwargs, **SMALL)  # type: ignore[arg-type]
        for index in range(10):
            env.reset("test", index, 0)
            rows = env._splits["test"][index]
            room, start = read_room(rows)
            plan = solve(room, start)
            assert plan is not None
            assert len(plan) == _fewest_moves("\n".join(rows), len(rows[0]) + 1)


def _fewest_moves(text: str, stride: int) -> int | None:
    goals = {at for at, letter in enumerate(text) if letter in "OVS"}
    plain = text.translate(str.maketrans("OVS", "_XP"))
    found, queue = {plain}, deque([(plain, 0)])
    while queue:
        here, moves = queue.popleft()
        if all(here[at] == "X" for at in goals):
            return moves
        at = here.index("P")
        for step in (-stride, stride, -1, 1):
            one, two = at + step, at + 2 * step
            squares = list(here)
            if squares[one] == "X" and squares[two] == "_":
                squares[two], squares[one] = "X", "_"
            if squares[one] != "_":
                continue
            squares[at], squares[one] = "_", "P"
            after = "".join(squares)
            if after not in found:
                found.add(after)
                queue.append((after, moves + 1))
    return None


def test_solver_knows_what_cannot_be_solved() -> None:
    room, start = read_room(("#####", "#X_P#", "#__O#", "#####"))  # a box in a corner
    assert (1, 1) not in push_distances(room)
    assert solve(room, start) is None


def test_pulled_depth_is_the_fewest_pushes_with_one_box() -> None:
    room, _ = read_room(("######", "#O___#", "#____#", "#___P#", "######"))
    layers = pull_off(6, room.floor, room.goals, 4, random.Random(0))
    # The goal is a corner: the box can only come along the two walls, from there on anywhere.
    assert {cell for one in layers[1] for cell in one.boxes} == {(1, 2), (2, 1)}
    assert all(push_distances(room)[next(iter(one.boxes))] <= depth for depth, at in enumerate(layers) for one in at)
    assert {cell for layer in layers for one in layer for cell in one.boxes} <= set(push_distances(room))


def test_every_task_can_be_solved_and_none_begins_solved() -> None:
    env = Sokoban(size=7, boxes=2, **SMALL)  # type: ignore[arg-type]
    for maps in env._splits.values():
        for rows in maps:
            room, start = read_room(rows)
            assert not room.solved(start)
            assert solve(room, start)


def test_expert_solves_the_default_test_split_and_random_is_far_from_it() -> None:
    env = Sokoban()
    assert score(env, expert_policy, "test", max_turns=100).success == 1.0
    assert score(env, random_policy(0), "test", max_turns=30).success < 0.4


def test_published_hash_of_the_splits() -> None:
    # Results name this hash. If it changes, old and new results cannot be compared: raise the version.
    schema = Sokoban().schema()
    assert (schema.version, schema.splits_hash) == ("1", "5b79bd9b55591965")


def test_rewards_are_ragens() -> None:
    env = Sokoban(**SMALL)  # type: ignore[arg-type]
    env._splits = {"train": (("#######", "#PX_O_#", "#_____#", "#_____#", "#######"),)}
    assert env.reset("train", 0, 0).actions == ("Down", "Right")
    first = env.step("Right")
    assert first.reward == pytest.approx(-0.1)
    last = env.step("Right")
    assert last.reward == pytest.approx(-0.1 + 1 + 10)
    assert (last.terminated, last.success) == (True, True)
    with pytest.raises(RuntimeError, match="reset"):
        env.step("Up")


def test_a_box_pushed_off_its_goal_costs_what_it_brought() -> None:
    env = Sokoban(boxes=2, **SMALL)  # type: ignore[arg-type]
    env._splits = {"train": (("#######", "#P_X_O#", "#_PV__#".replace("P", "_"), "#_____#", "#######"),)}
    env.reset("train", 0, 0)
    for word in ("Down", "Right"):
        assert env.step(word).reward == pytest.approx(-0.1)
    off = env.step("Right")
    assert off.reward == pytest.approx(-0.1 - 1)
    assert off.rewards == {"move": -0.1, "boxes": -1.0, "done": 0.0}


def test_texts_and_metrics_by_hand() -> None:
    env = Sokoban(show="both", **SMALL)  # type: ignore[arg-type]
    env._splits = {"train": (("#####", "#___#", "#P_X#", "#__O#", "#####"),)}
    first = env.reset("train", 0, 0)
    assert first.messages[1].content == (
        "# # # # #\n# _ _ _ #\n# P _ X #\n# _ _ O #\n# # # # #\nBox: 2 right.\nGoal: 1 down, 2 right.\n"
        "Ways: Up, Down, Right."
    )
    idle = env.step("Action: left.")
    assert idle.metrics == {"invalid_action": 0.0, "idle_action": 1.0, "box_stuck": 0.0}
    odd = env.step("fly")
    assert odd.metrics["invalid_action"] == 1.0
    assert odd.observation.messages[0].content.startswith("That is no action.")
    assert odd.observation.state_key == first.state_key


def test_limit_truncates() -> None:
    env = Sokoban(max_steps=2, **SMALL)  # type: ignore[arg-type]
    env.reset("train", 0, 0)
    assert not env.step("hm").truncated
    assert env.step("hm").truncated


@pytest.mark.parametrize("arguments", [{"size": 4}, {"boxes": 0}, {"pushes": (3, 2)}, {"max_steps": 0}, {"train": -1}])
def test_bad_arguments_name_themselves(arguments: dict) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        Sokoban(**arguments)


def test_too_many_tasks_for_a_small_room_are_refused() -> None:
    with pytest.raises(InputError, match="not enough different tasks"):
        Sokoban(size=5, pushes=(9, 9), train=10, validation=2, test=2)


def test_moves_are_the_only_words() -> None:
    assert set(Sokoban(**SMALL).reset("train", 0, 0).actions or ()) <= set(MOVES)  # type: ignore[arg-type]
