"""alfworld beside what it is built on: TextWorld's own environment for texts and commands, the planner for plans."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from installed import require_env

require_env("alfworld")
os.environ.setdefault("ALFWORLD_DATA", tempfile.gettempdir())  # else the package makes a folder in the user's home

import fast_downward  # noqa: E402
import textworld  # noqa: E402
from alfworld.agents.utils.misc import Demangler  # noqa: E402
from textworld.envs.pddl import PddlEnv  # noqa: E402

from rllib_agentic.envs.baselines import expert_policy, play  # noqa: E402
from rllib_agentic.envs.local import LocalClient  # noqa: E402
from rllib_agentic.envs.replay import ReplayingClient  # noqa: E402
from rllib_agentic.errors import InfrastructureError, InputError  # noqa: E402
from rllib_agentic.trajectory.trajectory import Task  # noqa: E402
from serve_envs.alfworld import game as games  # noqa: E402
from serve_envs.alfworld.env import AlfWorld  # noqa: E402
from serve_envs.alfworld.household import KINDS, SIZES, Household, Size  # noqa: E402
from serve_envs.alfworld.houses import Houses  # noqa: E402
from serve_envs.alfworld.make_games import make_games  # noqa: E402
from serve_envs.alfworld.package import constants, data_file, floor_plan  # noqa: E402
from serve_envs.alfworld.problem import domain, problem  # noqa: E402
from serve_envs.alfworld.tasks import make_splits  # noqa: E402
from serve_envs.child_env import children_of  # noqa: E402

CARD = Path(games.__file__).with_name("README.md")
FEW = (("train", 18), ("validation", 6), ("test", 12))


def running() -> set[int]:
    return {pid for pool in children_of(AlfWorld.target) for pid in pool.process_ids}


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Games are made here, not found; and no process is left."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    yield folder
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before
    pids = running()
    AlfWorld.release()
    assert not any(map(psutil.pid_exists, pids))


class Stock(textworld.core.Wrapper):
    """TextWorld's environment with ALFWorld's names, as ALFWorld wraps it."""

    def load(self, *args: Any) -> None:
        super().load(*args)
        entities = self._entity_infos
        names = Demangler(game_infos=entities, shuffle=False)
        for entity in entities.values():
            entity.name = names.demangle_alfred_name(entity.id).strip()


def stock_env(household: Household) -> Stock:
    env = Stock(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))
    grammar = data_file("data/alfred.twl2").read_text(encoding="utf-8").replace("UNKNOWN GOAL", household.sentence)
    env.load({"pddl_domain": domain(), "grammar": grammar, "pddl_problem": problem(household)})
    return env


def unordered(text: str) -> str:
    """Lists sorted: TextWorld's order is that of a set."""

    def tidy(found: re.Match[str]) -> str:
        return found[1] + "; ".join(sorted(re.split(r", and |, ", found[2]))) + "."

    return re.sub(r"(you see |You are carrying: |You are facing the )([^.]*)\.", tidy, text)


def some(size: Size, split: str = "test") -> tuple[Household, ...]:
    return make_splits(KINDS, size, FEW)[split]


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_texts_and_commands_are_those_of_textworlds_own_environment(number: int) -> None:
    household = some("small")[number]
    houses, stock = Houses(), stock_env(household)
    ours, theirs = houses.begin("s", household), stock.reset()
    draw = random.Random(number)
    said: Counter[str] = Counter()
    for turn in range(40):
        assert unordered(ours.text) == unordered(theirs.feedback)
        assert list(ours.commands) == theirs.admissible_commands
        assert ours.won == theirs.won
        if ours.won:
            break
        # the expert's way leads through all kinds of actions; what is drawn also goes astray
        command = houses.advise("s") if turn % 3 == 0 or turn > 25 else draw.choice((*ours.commands, "sing a song"))
        said[command.split()[0]] += 1
        ours = houses.act("s", command)
        theirs, _, _ = stock.step(command)
    assert ours.won
    assert len(said) >= 5
    houses.end("s")


@pytest.mark.parametrize("number", range(2 * len(KINDS)))
def test_the_expert_is_as_quick_as_the_planner_from_anywhere(number: int) -> None:
    household = some("small", "train")[number]
    houses = Houses()
    shown = houses.begin("s", household)
    draw = random.Random(number)
    for _ in range(6 * (number % 3)):
        shown = houses.act("s", draw.choice(shown.commands))
    library = houses._houses["s"].library
    _, sas = fast_downward.pddl2sas(domain(), problem(household), optimize=True)
    library.load_sas_replan(sas.encode())
    assert shown.won or library.replan(False)
    steps = 0 if shown.won else library.get_last_plan_length()
    for _ in range(steps):
        assert not shown.won
        shown = houses.act("s", houses.advise("s"))
        assert shown.done
    assert shown.won


def test_the_agent_may_think_and_use_the_words_of_older_versions() -> None:
    env = AlfWorld(kinds=KINDS[:1], size="small", train=1, validation=1, test=1, processes=1)
    env.reset("test", 0, 0)
    while not (action := env.expert_action()).startswith("move"):
        assert env.step(f"Thought: I need it.\nAction: {action.capitalize()}.").metrics == {"invalid_action": 0.0}
    wrong = env.step("put it down")
    assert (wrong.metrics, wrong.observation.messages[0].content) == ({"invalid_action": 1.0}, "Nothing happens.")
    last = env.step(action.replace("move", "put").replace(" to ", " in/on "))
    assert (last.terminated, last.success, last.reward) == (True, True, 1.0)
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("look")
    env.close()


def test_splits_share_no_room_and_nothing_is_solved_at_the_start() -> None:
    splits = make_splits(KINDS, "full", FEW)
    rooms = {split: {task.room for task in tasks} for split, tasks in splits.items()}
    assert not rooms["train"] & rooms["test"] and not rooms["validation"] & (rooms["train"] | rooms["test"])
    assert rooms["test"] <= set(constants()["TEST_SCENE_NUMBERS"])
    assert rooms["train"] | rooms["validation"] <= set(constants()["TRAIN_SCENE_NUMBERS"])
    longer = make_splits(KINDS, "full", (("train", 30), ("validation", 12), ("test", 12)))
    assert all(longer[split][: len(tasks)] == tasks for split, tasks in splits.items())
    for tasks in splits.values():
        assert [task.kind for task in tasks] == [KINDS[at % 6] for at in range(len(tasks))]
        for task in tasks:
            kind_at = {one.id: one.kind for one in task.receptacles}
            holding = [kind_at[thing.place] for thing in task.things if thing.kind == task.target]
            assert holding and task.destination not in holding
            assert len(holding) > 1 or task.kind != "pick_two_obj_and_place"


@pytest.mark.parametrize("size", SIZES)
def test_sizes_are_as_they_are_told(size: Size) -> None:
    for task in make_splits(KINDS, size, FEW)["train"]:
        standing = floor_plan(task.room).receptacles
        assert len(task.receptacles) == min(SIZES[size][0], len(standing))
        assert set(task.receptacles) <= set(standing)
        for thing in task.things:
            kind = next(one.kind for one in task.receptacles if one.id == thing.place)
            assert thing.kind in constants()["VAL_RECEPTACLE_OBJECTS"][kind] or thing.kind == "DeskLamp"


def test_the_card_tells_counts_and_hash() -> None:
    schema = AlfWorld().schema()
    told = CARD.read_text(encoding="utf-8")
    assert f"`{schema.splits_hash}`" in told
    assert all(f"`{split}` {count}" in told for split, count in schema.splits.items())


def test_a_game_is_made_once_and_a_spoilt_file_again(_own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = problem(some("small", "validation")[0])
    before = set(games.cache_folder().iterdir())
    made = games.open_game(domain(), text)
    (file,) = set(games.cache_folder().iterdir()) - before
    assert file.is_relative_to(_own_cache)
    with monkeypatch.context() as patched:
        patched.setattr(games, "_make", None)
        assert games.open_game(domain(), text) == made
    file.write_bytes(file.read_bytes()[:-40])
    assert games.open_game(domain(), text) == made
    assert set(games.cache_folder().iterdir()) - before == {file}


def test_games_can_be_made_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = AlfWorld(size="small", train=4, validation=1, test=5)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert make_games(env, ("train", "test"), 2) == 9
    assert [file.suffix for file in games.cache_folder().iterdir()] == [".game"] * 9
    monkeypatch.setattr(games, "_make", None)
    for split in ("train", "test"):
        for task in env.tasks()[split]:
            assert games.open_game(domain(), problem(task)).things


PLAYED = """
import hashlib, random
from serve_envs.alfworld.env import AlfWorld
env = AlfWorld(size="small", train=6, validation=6, test=6, processes=1)
told = []
for index in range(6):
    draw, shown = random.Random(index), env.reset("test", index, 0)
    for turn in range(16):
        told.append((shown.messages[-1].content, shown.actions, shown.state_key, env.expert_action()))
        result = env.step(told[-1][3] if turn % 2 else draw.choice(shown.actions))
        shown = result.observation
        if result.terminated:
            break
env.close()
AlfWorld.release()
print(hashlib.sha256(repr(told).encode()).hexdigest())
"""


def test_games_that_two_processes_make_are_the_same_under_any_hash_seed(tmp_path: Path) -> None:
    digests = set()
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "XDG_CACHE_HOME": str(tmp_path / seed)}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        digests.add(subprocess.run([sys.executable, "-c", PLAYED], env=env, check=True, capture_output=True).stdout)
    assert len(digests) == 1 and len(digests.pop()) == 65


def test_the_package_makes_no_folder_in_the_home(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "ALFWORLD_DATA"} | {"HOME": str(tmp_path)}
    code = (
        "from serve_envs.alfworld.env import AlfWorld; env = AlfWorld(size='small', train=6, validation=6, test=6);"
        "env.reset('test', 0, 0); env.close(); AlfWorld.release()"
    )
    paths = os.pathsep.join(filter(None, sys.path))
    subprocess.run([sys.executable, "-c", code], check=True, env=env | {"PYTHONPATH": paths})
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_dies_is_replaced_and_the_episode_goes_on() -> None:
    make = partial(AlfWorld, size="small", train=6, validation=6, test=6, processes=1)

    async def run() -> None:
        client = ReplayingClient(LocalClient(make))
        task = Task("alfworld", "train", 3, 0)
        one, other = await client.create(task), await client.create(task)
        seen = [await one.step("look"), await one.step("inventory")]
        before = running()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        assert (await other.step("look")).observation == seen[0].observation
        assert (await one.step("look")).observation.messages
        after = running()
        assert after and not after & before
        await client.aclose()

    asyncio.run(run())
    env = make()
    env.reset("train", 0, 0)
    AlfWorld.release()
    with pytest.raises(InfrastructureError) as lost:
        env.step("look")
    assert lost.value.kind == "session_lost"
    assert play(env, expert_policy, "train", 0, 0, 50)[-1].success
    env.close()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"kinds": ("pick_and_place",)}, "Did you mean 'pick_and_place_simple'"),
        ({"kinds": ()}, "one or more"),
        ({"size": "large"}, "small, medium, full"),
        ({"max_steps": 0}, "start at 1"),
        ({"test": -1}, "must not be negative"),
    ],
)
def test_arguments_that_cannot_work(arguments: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        AlfWorld(**arguments)
