from __future__ import annotations

import itertools
import json
import random
from importlib.util import find_spec

import pytest

if find_spec("bfcl_eval") is None or find_spec("mpmath") is None:
    pytest.skip("bfcl-eval is not installed", allow_module_level=True)

from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

from rllib_agentic.envs.baselines import expert_policy, play, random_policy
from rllib_agentic.errors import InputError
from rllib_agentic.tools import ToolUse
from serve_envs.bfcl.calls import GoldCall, read_gold
from serve_envs.bfcl.env import Bfcl
from serve_envs.bfcl.scenarios import CATEGORIES, all_scenarios, data_folder, make_splits
from serve_envs.bfcl.services import Services, _schema, documents, with_names
from serve_envs.call_text import write_call


def test_gold_calls_are_read_and_never_run() -> None:
    assert read_gold("f(1, b=[2, {'c': -3}])") == GoldCall("f", (1,), {"b": [2, {"c": -3}]})
    for text in ("__import__('os').getcwd()", "f(g(1))", "x", "f(open)", "f(1) + 1"):
        with pytest.raises((ValueError, SyntaxError)):
            read_gold(text)


def test_schemas_are_in_json_schemas_words() -> None:
    given = {
        "type": "dict",
        "properties": {"type": {"type": "float"}, "xs": {"type": "array", "items": {"type": "dict"}}},
    }
    assert _schema(given) == {
        "type": "object",
        "properties": {"type": {"type": "number"}, "xs": {"type": "array", "items": {"type": "object"}}},
    }


def test_splits_keep_the_variants_of_a_scenario_together() -> None:
    splits = make_splits(CATEGORIES)
    assert {split: len(tasks) for split, tasks in splits.items()} == {"train": 555, "validation": 80, "test": 160}
    numbers = {split: {task.name.rsplit("_", 1)[1] for task in tasks} for split, tasks in splits.items()}
    for one, other in itertools.combinations(numbers.values(), 2):
        assert not one & other
    assert {task.category for task in splits["test"][:4]} == set(CATEGORIES)


def test_published_hash_of_the_splits() -> None:
    # Results name this hash. If it changes, old and new results cannot be compared: raise the version.
    schema = Bfcl().schema()
    assert (schema.version, schema.splits_hash) == ("1", "5d6bc22c6fa390f7")


def test_verdicts_agree_with_the_packages_checker() -> None:
    """The package's own checker judges the same transcripts: right ones, and ones with calls dropped, added, spoilt."""
    draw = random.Random(0)
    env = Bfcl()
    verdicts = []
    for number in range(60):
        index = draw.randrange(160)
        scenario = make_splits(CATEGORIES)["test"][index]
        env.reset("test", index, 0)
        spoilt = number % 3 > 0
        turns: list[list[list[str]]] = []
        result = None
        for gold in scenario.gold:
            calls = [(call.name, with_names(call, scenario.services)) for call in gold]
            if spoilt and calls and draw.random() < 0.5:
                calls = draw.choice((calls[:-1], [*calls, calls[-1]], calls[::-1], [calls[0], *calls]))
            for name, arguments in calls:
                assert env.step(write_call(env.use, name, arguments)).terminated is False
            written = [
                [f"{name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"] for name, arguments in calls
            ]
            turns.append(written)
            result = env.step("Done.")
            if result.terminated:
                break
        turns += [[] for _ in range(len(scenario.gold) - len(turns))]
        verdict = multi_turn_checker(
            turns,
            _gold_texts(scenario.category)[scenario.name],
            _entry(scenario),
            scenario.category,
            f"oracle {number}",
        )
        assert result is not None and result.success is bool(verdict["valid"]), (scenario.name, verdict)
        verdicts.append(result.success)
    assert 15 < sum(verdicts) < 55


def _entry(scenario) -> dict:  # type: ignore[no-untyped-def]
    return {"id": scenario.name, "initial_config": scenario.state, "involved_classes": list(scenario.services)}


def _gold_texts(category: str) -> dict:
    path = data_folder() / f"possible_answer/BFCL_v4_multi_turn_{category}.json"
    return {one["id"]: one["ground_truth"] for one in map(json.loads, path.read_text().splitlines())}


def test_expert_does_every_category_and_random_next_to_nothing() -> None:
    env = Bfcl(progress_reward=0.25)
    for index in range(40):
        results = play(env, expert_policy, "test", index, 0, 40)
        assert results[-1].success, index
        assert sum(result.reward for result in results) == pytest.approx(1.0)
        assert sum(result.metrics.get("user_turns", 0.0) for result in results) == pytest.approx(1.0)
    assert sum(play(env, random_policy(index), "test", index, 0, 40)[-1].success for index in range(20)) <= 1


def test_expert_calls_one_by_one_where_a_turn_takes_one_call() -> None:
    env = Bfcl(use=ToolUse(calls_per_turn=1))
    for index in range(8):
        results = play(env, expert_policy, "test", index, 0, 80)
        assert results[-1].success
        assert all(result.metrics["tool_ok"] <= 1 for result in results)


def test_a_late_function_cannot_be_called_before_it_comes() -> None:
    env = Bfcl(categories=["miss_func"])
    index = next(i for i, task in enumerate(make_splits(("miss_func",))["test"]) if min(task.added) > 0)
    scenario = make_splits(("miss_func",))["test"][index]
    env.reset("test", index, 0)
    late = next(iter(scenario.added.values()))[0]
    turn = min(scenario.added)
    assert late not in {tool.name for tool in env.tools}
    for _ in range(200):
        if env._user_turn == turn:
            break
        result = env.step(env.expert_action())
    assert late in {tool.name for tool in env.tools}
    assert (
        "new functions" in result.observation.messages[-1].content and late in result.observation.messages[-1].content
    )


def test_a_turn_without_calls_where_some_were_needed_ends_the_episode() -> None:
    env = Bfcl(categories=["base"])
    env.reset("test", 0, 0)
    result = env.step("I have done it.")
    assert (result.terminated, result.success, result.reward) == (True, False, 0.0)
    with pytest.raises(RuntimeError, match="reset"):
        env.step("more")


def test_errors_of_functions_are_results() -> None:
    scenario = next(task for task in all_scenarios("base") if "GorillaFileSystem" in task.services)
    services = Services(scenario)
    assert services.call("cd", (), {"folder": 3}).startswith(("Error during execution", "{"))
    assert services.call("cat", (), {"wrong": 1}).startswith("Error during execution")


def test_services_of_two_sessions_share_nothing() -> None:
    for category in ("base", "long_context"):
        scenario = next(task for task in all_scenarios(category) if "GorillaFileSystem" in task.services)
        one, other = Services(scenario), Services(scenario)
        before = other.call("ls", (), {})
        one.call("mkdir", (), {"dir_name": "a_new_one"})
        assert "a_new_one" in one.call("ls", (), {})
        assert other.call("ls", (), {}) == before


def test_gold_is_not_told() -> None:
    env = Bfcl()
    for index in range(0, 160, 7):
        observation = env.reset("test", index, 0)
        assert "ground_truth" not in repr(observation)
        assert set(observation.info) == {"category", "scenario"}


def test_every_function_has_a_description() -> None:
    names = [one["name"] for service in ("GorillaFileSystem", "MathAPI", "TradingBot") for one in documents(service)]
    assert len(names) == len(set(names)) > 40


@pytest.mark.parametrize("arguments", [{"categories": []}, {"categories": ["single"]}, {"progress_reward": -0.1}])
def test_bad_arguments_name_themselves(arguments: dict) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        Bfcl(**arguments)
