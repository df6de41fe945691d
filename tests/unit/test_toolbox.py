from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import pytest

from rllib_agentic.envs.baselines import expert_policy, play, random_policy
from rllib_agentic.errors import InputError
from rllib_agentic.tools import ToolError
from rllib_agentic.tools.schema import check_tools
from rllib_agentic.tools.tool_env import own_tools
from serve_envs.call_text import random_call, write_call
from serve_envs.toolbox.assignment import differences, is_right, written
from serve_envs.toolbox.env import Toolbox
from serve_envs.toolbox.progress import SeenProgress, StateProgress
from serve_envs.toolbox.tasks import DOMAINS, build_world, make_splits, splits_hash
from serve_envs.toolbox.weather import _distance

ALL = tuple(DOMAINS)


@pytest.mark.parametrize(
    ("given", "right", "expected"),
    [
        ("21.5", 21.5, True),
        ("It is 21.5 °C.", 21.5, True),
        ("21.51", 21.5, True),
        ("21.52", 21.5, False),
        ("1,234", 1234.0, True),
        ("-3.2", -3.2, True),
        ("20 or 21.5", 21.5, False),
        ("", 21.5, False),
        ("  oslo. ", "Oslo", True),
        ('"Red Tower"', "Red Tower", True),
        ("Oslo or Rome", "Oslo", False),
        ("b, A", frozenset({"A", "B"}), True),
        ("A; b\n", frozenset({"A", "B"}), True),
        ("A, B, C", frozenset({"A", "B"}), False),
        ("A", frozenset({"A", "B"}), False),
    ],
)
def test_answers_are_judged_as_the_card_says(given: str, right: object, expected: bool) -> None:
    assert is_right(given, right) is expected  # type: ignore[arg-type]


def test_what_is_written_is_right() -> None:
    for right in (21.456, 3.0, "Oslo", frozenset({"B", "A"})):
        assert is_right(written(right), right)  # type: ignore[arg-type]


def test_differences_and_progress_by_hand() -> None:
    before, goal = {"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 1, "d": 4}
    assert differences(before, goal) == {"a": 2, "c": None, "d": 4}
    progress = StateProgress(before, goal)
    assert not progress.look(before) and progress.share() == 0.0
    assert not progress.look({"a": 2, "b": 1, "c": 1}) and progress.share() == pytest.approx(1 / 3)
    assert not progress.look({"a": 2, "b": 9, "c": 9}) and progress.share() == pytest.approx(1 / 3)  # worse: kept
    assert progress.look(goal) and progress.share() == 1.0
    seen = SeenProgress([("t", "1"), ("t", "2"), ("t", "1")])
    seen.seen("t", "1")
    seen.seen("u", "2")
    assert seen.share() == 0.5


def test_great_circle_distances() -> None:
    assert _distance("Paris", "Berlin") == pytest.approx(878, abs=5)  # the usual figure
    assert _distance("Quito", "Nairobi") == pytest.approx(12_800, rel=0.02)


def test_splits_share_no_world_and_no_two_tasks_are_the_same() -> None:
    splits = make_splits(ALL)
    assert {split: len(errands) for split, errands in splits.items()} == {"train": 600, "validation": 100, "test": 200}
    tasks = [(one.domain, one.world, one.assignment.prompt) for errands in splits.values() for one in errands]
    assert len(tasks) == len(set(tasks)) == 900
    contents = {json.dumps(build_world(*at).words()) for at in {one[:2] for one in tasks}}
    assert len(contents) == 5 * 18  # all worlds differ
    worlds = {split: {(errand.domain, errand.world) for errand in errands} for split, errands in splits.items()}
    for one, other in itertools.combinations(worlds.values(), 2):
        assert not one & other
    assert {errand.domain for errand in splits["test"][:5]} == set(ALL)


def test_published_hash_of_the_splits() -> None:
    # Results name this hash. If it changes, old and new results cannot be compared: raise the version.
    assert (Toolbox().schema().version, splits_hash(ALL)) == ("1", "059ef1ea1fccd40f")


def test_a_domain_keeps_its_tasks_whichever_others_are_asked_for() -> None:
    everything = [errand for errand in make_splits(ALL)["test"] if errand.domain == "sheet"]
    assert list(make_splits(("sheet",))["test"]) == everything


def test_tools_of_all_services_are_sound_and_their_names_differ() -> None:
    tools = [tool for domain in DOMAINS for tool in own_tools(build_world(domain, "test 0"))]
    assert set(check_tools(tools)) == {tool.name for tool in tools}
    assert len(tools) == 27


def test_expert_solves_every_kind_and_reaches_every_sub_goal() -> None:
    env = Toolbox(progress_reward=0.5)
    kinds = set()
    for index in range(50):
        kinds.add(env.reset("test", index, 0).info["kind"])
        results = play(env, expert_policy, "test", index, 0, 30)
        assert results[-1].success, index
        assert sum(result.metrics.get("progress", 0.0) for result in results) == pytest.approx(1.0)
        assert sum(result.reward for result in results) == pytest.approx(1.0)
        assert sum(result.rewards.get("success", 0.0) for result in results) == pytest.approx(0.5)
    assert len(kinds) == 24  # five of each service; two services share "count"


def test_expert_goes_on_after_calls_of_others() -> None:
    env = Toolbox(domains=["weather", "movies", "academia"])
    for index in range(30):
        env.reset("test", index, 0)
        draw = random.Random(index)
        for turn in range(60):
            action = random_call(env.use, env.tools, env._world.words(), draw) if turn % 3 == 1 else env.expert_action()
            result = env.step(action)
            if result.terminated:
                break
        assert result.success, index


def test_random_calls_fit_their_schemas_and_solve_next_to_nothing() -> None:
    env = Toolbox()
    solved = 0
    for index in range(20):
        results = play(env, random_policy(index), "test", index, 0, 15)
        solved += results[-1].success
        assert not any(result.metrics["tool_bad_arguments"] or result.metrics["tool_parse_error"] for result in results)
    assert solved <= 2


def test_questions_are_answered_from_the_data_alone() -> None:
    """Oracle: weather questions answered again from what the tool says, by reading the prompt."""
    checked = 0
    for errand in make_splits(("weather",))["train"]:
        one = errand.assignment
        world = build_world("weather", errand.world)
        if one.kind == "long time":
            first, last, city = re.findall(r"from (\S+) to (\S+), .* in (\w+)\?", one.prompt)[0]
            days: dict[str, Any] = {}
            for call in one.calls:
                days |= world.weather(**call.arguments)
            assert all(call.arguments["city"] == city for call in one.calls)
            assert sum(record["rain_mm"] > 0 for day, record in days.items() if first <= day <= last) == one.answer
        elif one.kind == "compare":
            cities, day = re.findall(r"Which of (.+) has the highest temperature on (\S+)\?", one.prompt)[0]
            highs = {city: world.weather(city, day, day)[day]["high_c"] for city in cities.split(", ")}
            assert max(highs, key=lambda city: highs[city]) == one.answer
        else:
            continue
        checked += 1
    assert checked == 48


def test_an_order_is_done_when_the_state_is_right_whatever_the_way() -> None:
    env = Toolbox(domains=["sheet"])
    index = next(i for i, e in enumerate(make_splits(("sheet",))["test"]) if e.assignment.kind == "fill a column")
    env.reset("test", index, 0)
    goal = make_splits(("sheet",))["test"][index].assignment.goal
    assert goal is not None
    sheet = make_splits(("sheet",))["test"][index].assignment.calls[1].arguments["sheet"]
    cells = {
        key.split()[1]: value for key, value in goal.items() if key.startswith(f"{sheet} E") and key != f"{sheet} E1"
    }
    results = []
    for cell, value in reversed(cells.items()):  # cell by cell, from below, which the plan does not do
        results.append(env.step(write_call(env.use, "write_cells", {"sheet": sheet, "start": cell, "values": [value]})))
    assert [result.success for result in results] == [False] * (len(cells) - 1) + [True]
    assert results[-1].terminated and results[-1].reward == 1.0


def test_an_order_is_not_done_by_saying_so_nor_with_other_changes() -> None:
    env = Toolbox(domains=["todo"])
    index = next(i for i, e in enumerate(make_splits(("todo",))["test"]) if e.assignment.kind == "change one")
    env.reset("test", index, 0)
    said = env.step("<answer>done</answer>")
    assert (said.terminated, said.success) == (True, False)
    env.reset("test", index, 0)
    plan = make_splits(("todo",))["test"][index].assignment.calls
    other = next(key for key in build_world("todo", "test 0").tasks if key != plan[-1].arguments["task_id"])
    env.step(write_call(env.use, "delete_task", {"task_id": other}))
    result = env.step(write_call(env.use, plan[-1].tool, plan[-1].arguments))
    assert not result.terminated and not result.success


def test_errors_of_tools_are_told_and_change_nothing() -> None:
    for domain, name, arguments, says in (
        (
            "weather",
            "weather",
            {"city": "Atlantis", "start": "2022-01-01", "end": "2022-01-01"},
            "no data of 'Atlantis'",
        ),
        ("weather", "weather", {"city": None, "start": "soon", "end": "2022-01-01"}, "is no date"),
        ("movies", "film", {"film_id": 1}, "no film 1"),
        ("movies", "find_film", {"title": ""}, "60 films"),
        ("todo", "update_task", {"task_id": 200, "field": "priority", "value": 9}, "from 1 to 4"),
        ("todo", "update_task", {"task_id": 200, "field": "project", "value": 999}, "no project 999"),
        ("todo", "update_task", {"task_id": 200, "field": "due", "value": "soon"}, "is no date"),
        ("sheet", "read_range", {"sheet": None, "cells": "Z1:Z2"}, "is no cell"),
        ("sheet", "delete_row", {"sheet": None, "row": 1}, "from 2 to"),
        ("academia", "paper", {"paper_id": 1}, "no paper 1"),
    ):
        world = build_world(domain, "test 0")
        first = {"weather": "cities", "sheet": "sheets"}.get(domain)
        given = {k: next(iter(getattr(world, first))) if v is None and first else v for k, v in arguments.items()}
        before = world.snapshot()
        with pytest.raises(ToolError, match=re.escape(says)):
            getattr(world, name)(**given)
        assert world.snapshot() == before


def test_the_answer_is_not_in_what_the_agent_sees_first() -> None:
    env = Toolbox()
    for index in range(60):
        errand = make_splits(ALL)["train"][index]
        shown = json.dumps([message.content for message in env.reset("train", index, 0).messages])
        answer = errand.assignment.answer
        if isinstance(answer, str) and "Which of" not in errand.assignment.prompt:
            assert answer not in shown


def test_sessions_of_one_world_do_not_share_it() -> None:
    one, other = Toolbox(domains=["todo"]), Toolbox(domains=["todo"])
    one.reset("test", 0, 0)
    other.reset("test", 0, 0)
    before = other.state_key()
    one.step(write_call(one.use, "delete_task", {"task_id": 200}))
    assert other.state_key() == before
    assert (
        "200"
        in other.step(write_call(other.use, "list_tasks", {"project_id": other._world.tasks[200]["project"]}))
        .observation.messages[0]
        .content
    )


def test_random_calls_take_values_of_the_world() -> None:
    world = build_world("weather", "test 0")
    draw = random.Random(0)
    calls = [random_call(Toolbox().use, own_tools(world), world.words(), draw) for _ in range(40)]
    assert any(city in call for call in calls for city in world.cities)


@pytest.mark.parametrize("arguments", [{"domains": []}, {"domains": ["bank"]}, {"progress_reward": 1.5}])
def test_bad_arguments_name_themselves(arguments: dict) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        Toolbox(**arguments)
