from __future__ import annotations

import random

import pytest

pytest.importorskip("minigrid")

from rllib_agentic.envs.baselines import expert_policy, play
from rllib_agentic.errors import InputError
from serve_envs.babyai.env import BabyAI
from serve_envs.babyai.levels import family, level_ids, make_level
from serve_envs.babyai.make_tasks import PER_LEVEL, split_of
from serve_envs.babyai.options import DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE, list_options
from serve_envs.babyai.tasks import SPLITS, all_seeds, make_splits
from serve_envs.babyai.view import look
from serve_envs.babyai.world import state_key


def test_all_levels_of_the_package_are_there() -> None:
    assert len(level_ids()) == 96
    assert set(all_seeds()) == set(level_ids())
    assert {family(level) for level in level_ids()} == {
        "go to",
        "find",
        "open",
        "unlock",
        "pick up",
        "put next to",
        "mixed",
        "boss",
    }
    for level, splits in all_seeds().items():
        assert {split: len(seeds) for split, seeds in splits.items()} == PER_LEVEL, level


def test_layout_decides_the_split_and_no_layout_occurs_twice() -> None:
    """Also notices a release of the package that lays out other rooms for the same seeds."""
    for level in ("GoToRedBallGrey", "GoToObjS4", "OpenRedDoor", "BossLevel"):
        keys: dict[str, str] = {}
        for split in SPLITS:
            for seed in all_seeds()[level][split]:
                key = state_key(make_level(level, seed))
                assert key not in keys, (level, seed, keys[key])
                keys[key] = split
                assert split_of(key) == split


def test_published_hash_of_the_splits() -> None:
    # Results name this hash. If it changes, old and new results cannot be compared: raise the version.
    schema = BabyAI().schema()
    assert (schema.version, schema.splits_hash) == ("1", "7251c6edb0e7ee27")
    assert schema.splits == {"train": 3840, "validation": 480, "test": 960}


def test_any_beginning_of_a_split_holds_all_levels() -> None:
    levels = tuple(level_ids())
    assert {mission.level for mission in make_splits(levels)["test"][:96]} == set(levels)


def test_the_package_numbers_its_steps_as_we_do() -> None:
    actions = make_level("GoToObj", 0).actions
    assert (actions.left, actions.right, actions.forward) == (LEFT, RIGHT, FORWARD)
    assert (actions.pickup, actions.drop, actions.toggle) == (PICKUP, DROP, TOGGLE)


def test_view_agrees_with_the_packages_picture() -> None:
    """Oracle: the symbolic picture of the package, which marks what is not seen with 0."""
    from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX

    draw = random.Random(0)
    for level_name in ("GoToLocal", "Open", "BossLevel"):
        level = make_level(level_name, 5)
        for _ in range(30):
            picture = level.gen_obs()["image"]
            middle, last = picture.shape[0] // 2, picture.shape[1] - 1
            view = look(level)
            expected = {
                (last - row, column - middle, int(kind), int(colour))
                for column in range(picture.shape[0])
                for row in range(picture.shape[1])
                for kind, colour, _ in [picture[column, row]]
                if (row, column) != (last, middle)
                and kind in {OBJECT_TO_IDX[k] for k in ("ball", "box", "key", "door")}
            }
            seen = {(s.ahead, s.right, OBJECT_TO_IDX[s.kind], COLOR_TO_IDX[s.colour]) for s in view.things}
            assert seen == expected
            for thing in view.things:
                assert level.grid.get(*thing.at).color == thing.colour
            assert len({thing.name for thing in view.things}) == len(view.things)
            level.step(draw.choice((LEFT, RIGHT, FORWARD, FORWARD, TOGGLE)))


def test_high_level_actions_end_where_they_say() -> None:
    checked = 0
    for seed in range(15):
        level = make_level("BossLevelNoUnlock", seed)
        view = look(level)
        for action, steps in list_options(level, view, with_high_level=True).items():
            verb = next(
                (verb for verb in ("toggle and go through", "go through", "go to", "pick up") if verb in action), ""
            )
            name = action.removeprefix(verb).strip()
            thing = next((thing for thing in view.things if thing.name == name), None)
            if not verb or thing is None:
                continue
            world = make_level("BossLevelNoUnlock", seed)
            target = world.grid.get(*thing.at)
            for step in steps:
                world.step(step)
            if verb == "go to":
                assert tuple(world.front_pos) == thing.at
            elif verb == "pick up":
                assert world.carrying is target
            else:
                assert target.is_open and _beyond(make_level("BossLevelNoUnlock", seed), world, thing.at)
            checked += 1
    assert checked > 40


def _beyond(before, after, door) -> bool:  # type: ignore[no-untyped-def]
    """The door lies between where the agent was and where it is now, one square from it, or under its feet."""
    distance = abs(after.agent_pos[0] - door[0]) + abs(after.agent_pos[1] - door[1])
    return distance <= 1 and tuple(after.agent_pos) != tuple(before.agent_pos)


def test_admissible_actions_change_something() -> None:
    for index in range(0, 96, 5):
        env = BabyAI()
        for action in env.reset("train", index, 0).actions or ():
            before = env.reset("train", index, 0).state_key
            result = env.step(action)
            assert result.metrics["failed_action"] == result.metrics["invalid_action"] == 0.0
            assert result.terminated or result.observation.state_key != before, (index, action)


def test_expert_solves_tasks_of_every_family_in_few_actions() -> None:
    env = BabyAI(levels=["GoToLocal", "OpenRedDoor", "PutNextS4N1", "KeyInBox", "PutNextS5N2Carrying", "FindObjS5"])
    for index in range(12):
        assert play(env, expert_policy, "test", index, 0, 60)[-1].success, index


def test_asking_the_expert_changes_nothing() -> None:
    env = BabyAI(levels=["PutNextLocal"])
    env.reset("train", 0, 0)
    before = state_key(env._level)
    assert env.expert_action() == env.expert_action()
    assert state_key(env._level) == before


def test_expert_goes_on_from_wherever_it_is() -> None:
    env = BabyAI(levels=["GoToLocal", "OpenRedDoor"])
    draw = random.Random(0)
    for index in range(8):
        observation = env.reset("train", index, 0)
        result = None
        for _ in range(4):
            result = env.step(draw.choice(observation.actions or ()))
            observation = result.observation
            if result.terminated:
                break
        while result is not None and not (result.terminated or result.truncated):
            result = env.step(env.expert_action())
        assert result is not None and result.success, index


def test_texts_and_metrics_by_hand() -> None:
    env = BabyAI(levels=["OpenRedDoor"])
    first = env.reset("train", 0, 0)
    assert first.info == {"category": "open", "level": "OpenRedDoor"}
    assert first.messages[1].content.startswith("Mission: open the red door.\nYou see ")
    assert env.step("Thought: what?\nAction: Dance.").observation.messages[0].content.startswith("That is no action.\n")
    failed = env.step("drop")
    assert failed.observation.messages[0].content.startswith("That cannot be done now.\n")
    assert failed.metrics == {"invalid_action": 0.0, "failed_action": 1.0, "primitive_steps": 0.0}
    assert env.step("go to the door").metrics["invalid_action"] == 1.0
    assert env.step("go to purple open door 9").metrics == failed.metrics
    while not (result := env.step(env.expert_action())).terminated:
        pass
    assert (result.success, result.reward) == (True, 1.0)
    with pytest.raises(RuntimeError, match="reset"):
        env.step("drop")


def test_minigrid_reward_and_primitive_actions() -> None:
    env = BabyAI(levels=["GoToRedBallGrey"], actions="primitive", reward="minigrid")
    first = env.reset("train", 0, 0)
    assert set(first.actions or ()) <= {"turn left", "turn right", "move forward", "pick up", "drop", "toggle"}
    results = [env.step(env.expert_action())]
    while not results[-1].terminated:
        results.append(env.step(env.expert_action()))
    assert results[-1].reward == pytest.approx(1 - 0.9 * len(results) / 64)
    assert env.schema().reward_range == (0.0, 1.0)


def test_levels_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(30):
        make_level("MiniBossLevel", seed)
    assert capsys.readouterr().out == ""


def test_limits_truncate() -> None:
    env = BabyAI(levels=["GoToObj"], max_steps=2)
    env.reset("train", 0, 0)
    assert not env.step("hm").truncated
    assert env.step("hm").truncated


@pytest.mark.parametrize(
    "arguments", [{"levels": ["GoToLocale"]}, {"levels": []}, {"actions": "all"}, {"reward": "x"}, {"max_steps": 0}]
)
def test_bad_arguments_name_themselves(arguments: dict) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        BabyAI(**arguments)
