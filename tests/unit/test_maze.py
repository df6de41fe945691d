from __future__ import annotations

import pytest

from rllib_agentic.envs.baselines import expert_policy, random_policy, score
from rllib_agentic.errors import InputError
from serve_envs.grid import canonical
from serve_envs.maze.env import MazeEnv
from serve_envs.maze.tasks import Maze, make_splits

SMALL = {"train": 20, "validation": 5, "test": 10}
COUNTS = (("train", 60), ("validation", 15), ("test", 25))

# P _ _      the upper row is a corridor, the lower right cell hangs under its end
# # # _      and the lower left two cells are reached from there
CORRIDOR = Maze(
    size=2,
    openings=frozenset({((0, 0), (0, 1)), ((0, 1), (1, 1)), ((1, 0), (1, 1))}),
    start=(0, 0),
    goal=(1, 0),
)


def test_map_and_distances_by_hand() -> None:
    assert CORRIDOR.draw((0, 0)) == ("#####", "#P__#", "###_#", "#G__#", "#####")
    assert CORRIDOR.distances() == {(1, 0): 0, (1, 1): 1, (0, 1): 2, (0, 0): 3}
    assert CORRIDOR.target((0, 0), "Down") is None
    assert CORRIDOR.target((0, 0), "Right") == (0, 1)


def test_without_loops_there_is_one_way_between_any_two_cells() -> None:
    for mazes in make_splits(6, 0.0, COUNTS).values():
        for maze in mazes:
            assert len(maze.openings) == 6 * 6 - 1  # a tree: connected (all have a distance), one edge less than cells
            assert len(maze.distances()) == 36


def test_loops_take_out_their_share_of_walls() -> None:
    inner, kept = 2 * 6 * 5, 6 * 6 - 1
    for maze in make_splits(6, 0.4, COUNTS)["test"]:
        assert len(maze.openings) == kept + round(0.4 * (inner - kept))


def test_no_maze_is_in_two_splits_turned_or_mirrored() -> None:
    splits = make_splits(4, 0.2, COUNTS)
    drawn = [canonical(maze.draw(maze.start)) for mazes in splits.values() for maze in mazes]
    assert len(drawn) == len(set(drawn)) == 100


def test_turned_and_mirrored_drawings_have_one_form() -> None:
    assert canonical(("ab", "cd")) == canonical(("ca", "db")) == canonical(("ba", "dc"))
    assert canonical(("ab", "cd")) != canonical(("ab", "dc"))


def test_expert_takes_a_shortest_way_and_random_does_not() -> None:
    env = MazeEnv()
    for index in range(100):
        env.reset("test", index, 0)
        maze = env._splits["test"][index]
        steps = 1
        while not env.step(env.expert_action()).success:
            steps += 1
        assert steps == _shortest("\n".join(maze.draw(maze.start)), 2 * 5 + 2)
    assert score(env, expert_policy, "test", max_turns=30).success == 1.0
    assert score(env, random_policy(0), "test", max_turns=30).success < 0.65


def _shortest(text: str, stride: int) -> int:
    """Oracle: flood the drawing; a cell is every second square."""
    front, seen, squares = {text.index("P")}, {text.index("P")}, 0
    while text.index("G") not in front:
        front = {at + step for at in front for step in (-stride, stride, -1, 1) if text[at + step] in "_G"} - seen
        seen |= front
        squares += 1
    return squares // 2


def test_published_hash_of_the_splits() -> None:
    # Results name this hash. If it changes, old and new results cannot be compared: raise the version.
    schema = MazeEnv().schema()
    assert (schema.version, schema.splits_hash) == ("1", "c6b01eef20e75fac")


def test_texts_by_hand() -> None:
    env = MazeEnv(**SMALL)  # type: ignore[arg-type]
    env._splits = {"train": (CORRIDOR,)}
    first = env.reset("train", 0, 0)
    assert first.messages[1].content == "Row 1, column 1. Goal: 1 down.\nNew: Right."
    assert first.info == {"category": "1 to 3 steps"}
    wall = env.step("Down")
    assert wall.observation.messages[0].content.startswith("There is a wall.\n")
    assert wall.metrics == {"invalid_action": 0.0, "idle_action": 1.0}
    assert wall.observation.state_key == first.state_key
    assert env.step("Action: right").observation.messages[0].content == (
        "Row 1, column 2. Goal: 1 down, 1 left.\nNew: Down. Walked: Left."
    )
    assert env.step("go").metrics["invalid_action"] == 1.0
    env.step("Down")
    last = env.step("Left")
    assert (last.terminated, last.success, last.reward) == (True, True, 1.0)
    with pytest.raises(RuntimeError, match="reset"):
        env.step("Up")


def test_ways_only_tell_neither_place_nor_goal() -> None:
    env = MazeEnv(show="ways", trail=False, **SMALL)  # type: ignore[arg-type]
    env._splits = {"train": (CORRIDOR,)}
    assert env.reset("train", 0, 0).messages[1].content == "Ways: Right."


def test_limit_truncates_and_steps_cost() -> None:
    env = MazeEnv(max_steps=2, step_reward=-0.1, **SMALL)  # type: ignore[arg-type]
    assert env.schema().reward_range == (-0.2, 1.0)
    env.reset("train", 0, 0)
    assert env.step("hm").reward == -0.1
    assert env.step("hm").truncated


@pytest.mark.parametrize("arguments", [{"size": 1}, {"loops": 1.5}, {"show": "no"}, {"max_steps": 0}, {"test": -1}])
def test_bad_arguments_name_themselves(arguments: dict) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        MazeEnv(**arguments)


def test_too_many_tasks_for_a_small_maze_are_refused() -> None:
    with pytest.raises(InputError, match="not enough different tasks"):
        MazeEnv(size=2, train=100, validation=10, test=10)
