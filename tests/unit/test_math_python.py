"""The mathematics environment: its problems, its episodes, its numbers."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from spoken_episodes import collected, speech_of, tiny

from rllib_agentic.envs.baselines import expert_policy, play, random_policy, score
from rllib_agentic.envs.checker import check_env
from rllib_agentic.envs.registry import make_env
from rllib_agentic.errors import InputError
from rllib_agentic.offline.dataset import load_offline
from rllib_agentic.offline.settings import OfflineSettings
from rllib_agentic.sandbox.mending import working_isolations
from rllib_agentic.store import TrajectoryWriter
from rllib_agentic.trajectory import FinishReason
from serve_envs.math_python import generators
from serve_envs.math_python.dataset import final_answer
from serve_envs.math_python.generators import LEVELS, TOPICS, Level, Topic, generate

pytest.importorskip("math_verify")

SMALL = {"train": 12, "validation": 4, "test": 4}


@pytest.fixture(scope="module", autouse=True)
def sandbox_works() -> None:
    working, faults = working_isolations()
    if not working:
        pytest.skip(f"NOT TESTED: {'; '.join(faults)}")


def make(**args: Any) -> Any:
    return make_env("math_python", **(SMALL | args))


def said(*texts: str, **args: Any) -> list[Any]:
    """Play the first training task with these texts."""
    env = make(**args)
    env.reset("train", 0, 0)
    results = [env.step(text) for text in texts]
    env.close()
    return results


def total(results: list[Any], name: str) -> float:
    return sum(result.metrics.get(name, 0.0) for result in results)


# --- problems -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("level", LEVELS)
def test_each_problems_program_finds_its_answer(topic: Topic, level: Level) -> None:
    """Two ways to one answer: most programs try all cases where the generator has a formula."""
    for seed in range(6):
        problem = generate(topic, level, random.Random(f"{topic} {level} {seed}"))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(problem.program, {"__name__": "__main__"})
        assert printed.getvalue().strip() == problem.answer, problem


def test_every_kind_of_problem_comes_up() -> None:
    kinds = {
        kind.__name__
        for module in (generators.arithmetic, generators.number_theory, generators.algebra, generators.combinatorics,
                       generators.word_problems)
        for level in LEVELS
        for kind in module._KINDS[level]
    }  # fmt: skip
    assert len(kinds) == 38


def test_splits_share_no_question() -> None:
    env = make_env("math_python")
    questions = {
        split: [env.reset(split, i, 0).messages[-1].content for i in range(200)] for split in env.schema().splits
    }
    assert len({q for qs in questions.values() for q in qs}) == sum(map(len, questions.values()))
    assert make_env("math_python").schema() == env.schema()
    assert (
        make_env("math_python", tasks={"type": "generated", "seed": 1}).schema().splits_hash != env.schema().splits_hash
    )


def test_topics_and_levels_are_chosen() -> None:
    env = make(tasks={"type": "generated", "topics": ["algebra"], "levels": [1, 3]})
    categories = {env.reset("train", index, 0).info["category"] for index in range(12)}
    assert categories == {"algebra 1", "algebra 3"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"tasks": {"type": "generated", "topics": ["geometry"]}}, "topics"),
        ({"tasks": {"type": "generated", "levels": [5]}}, "levels"),
        ({"tasks": "riddles"}, "unknown type 'riddles'"),
        ({"tasks": {"type": "dataset", "path": "/no/such.jsonl"}}, "cannot be read"),
        ({"tasks": {"type": "generated", "topics": ["combinatorics"], "levels": [1]}, "train": 300}, "not enough"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"output": {"most_char": 3}}, "Did you mean 'most_chars'"),
        ({"novice": {"code": 2}}, "novice.code"),
        ({"use": {"spent": "never"}}, "use.spent"),
    ],
)
def test_bad_arguments_stop_the_start(args: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**args)


# --- data sets --------------------------------------------------------------------------------------------------------


ROWS = [
    {"question": f"What is {n} + 1000?", "answer": f"{n} and 1000 make {n + 1000}.\n#### {n + 1000:,}"}
    for n in range(40)
]


@pytest.fixture(params=["jsonl", "parquet"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"gsm.{request.param}"
    if request.param == "jsonl":
        path.write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    else:
        pa.parquet.write_table(pa.Table.from_pylist(ROWS), path)
    return path


def test_a_file_is_dealt_to_the_splits(dataset: Path) -> None:
    env = make_env("math_python", tasks={"type": "dataset", "path": str(dataset)})
    splits = env.schema().splits
    assert sum(splits.values()) == 40 and splits["train"] > splits["test"]
    assert score(env, expert_policy, "test", 5).success == 1.0
    url = make_env("math_python", tasks={"type": "dataset", "path": f"file://{dataset}"})
    assert url.schema() == env.schema()


def test_a_file_a_split_and_no_question_in_two(tmp_path: Path) -> None:
    for name, rows in {"a": ROWS[:30], "b": ROWS[25:]}.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    paths = {"train": str(tmp_path / "a.jsonl"), "test": str(tmp_path / "b.jsonl")}
    splits = make_env("math_python", tasks={"type": "dataset", "path": paths}).schema().splits
    assert dict(splits) == {"train": 25, "test": 15}


def test_rows_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"problem": "1 + 1"}\n')
    with pytest.raises(InputError, match=r"row 1: no columns 'question' and 'answer'; it has problem"):
        make_env("math_python", tasks={"type": "dataset", "path": str(path)})
    path.write_text("1 + 1\n{")
    with pytest.raises(InputError, match="line 1 is no JSON"):
        make_env("math_python", tasks={"type": "dataset", "path": str(path)})


def test_the_answer_of_a_worked_solution() -> None:
    assert final_answer("48/2 = <<48/2=24>>24\n#### 72") == "72"
    assert final_answer(r"Thus $x = \boxed{\frac{3}{4}}$.") == r"\frac{3}{4}"


def test_reasoning_gym() -> None:
    pytest.importorskip("reasoning_gym")
    env = make(tasks={"type": "reasoning_gym", "datasets": ["chain_sum", "gcd"]})
    assert {env.reset("train", index, 0).info["category"] for index in range(12)} == {"chain_sum", "gcd"}
    assert score(env, expert_policy, "train", 5).success == 1.0
    with pytest.raises(InputError, match="no_such"):
        make(tasks={"type": "reasoning_gym", "datasets": ["no_such"]})


# --- episodes ---------------------------------------------------------------------------------------------------------

CODE = "Let me compute.\n```python\nprint({})\n```\n```output"


def test_it_passes_the_checker() -> None:
    from functools import partial

    assert check_env(partial(make_env, "math_python", **SMALL), tasks_per_split=3) == []


def test_code_runs_and_its_output_is_appended() -> None:
    first, last = said(CODE.format("6 * 7"), "So \\boxed{42}.")
    (message,) = first.observation.messages
    assert message.continues and message.content == "\n42\n```\n"
    assert (first.reward, first.terminated) == (0.0, False)
    assert last.terminated and last.metrics["no_answer"] == 0.0


def test_an_error_is_its_last_line_and_a_long_output_its_ends() -> None:
    (first,) = said(CODE.format("1 / 0"))
    assert first.observation.messages[0].content == "\nZeroDivisionError: division by zero\n```\n"
    (first,) = said(CODE.format("'a' * 500 + 'b' * 500"))
    assert first.observation.messages[0].content == f"\n{'a' * 128}...{'b' * 128}\n```\n"
    (first,) = said("```python\nx = 1\n```\n```output")
    assert "use print()" in first.observation.messages[0].content


def test_over_the_budget_code_is_text() -> None:
    results = said(CODE.format("1"), CODE.format("2"), "\\boxed{0}")
    assert [result.observation.messages[0].content for result in results[:2]] == ["\n1\n```\n", ""]
    assert total(results, "code_runs") == 1.0 and total(results, "tool_over_limit") == 1.0
    assert results[-1].terminated


def test_a_box_in_code_or_output_is_no_answer() -> None:
    box = "'\\\\boxed{5}'"
    results = said(CODE.format(box), "I do not know.")
    assert "\\boxed{5}" in results[0].observation.messages[0].content
    assert results[-1].metrics["no_answer"] == 1.0


def test_a_box_before_the_code_counts_until_another_comes() -> None:
    env = make()
    env.reset("train", 0, 0)
    answer = env._problem.answer
    env.step(f"I guess \\boxed{{{answer}}}. " + CODE.format("1"))
    assert env.step("Yes.").success
    env.reset("train", 0, 0)
    env.step(f"I guess \\boxed{{{answer}}}. " + CODE.format("1"))
    assert not env.step("No: \\boxed{-1}").success


def test_variables_stay_where_asked_for() -> None:
    texts = ("```python\nx = 5\n```\n```output", CODE.format("x"))
    assert "NameError" in said(*texts, calls=2)[-1].observation.messages[0].content
    assert said(*texts, calls=2, persist=True)[-1].observation.messages[0].content == "\n5\n```\n"


def test_outputs_as_messages() -> None:
    first, last = said(CODE.format("3"), "\\boxed{3}", observation="message")
    assert first.observation.messages[0].role == "user" and not first.observation.messages[0].continues
    assert last.terminated


def test_the_numbers_of_the_paper() -> None:
    env = make(calls=4)
    env.reset("train", 0, 0)
    answer = env._problem.answer
    results = [
        env.step(text) for text in (CODE.format("1 / 0"), CODE.format("2"), CODE.format("nope"), CODE.format("3"))
    ]
    results.append(env.step(f"\\boxed{{{answer}}}"))
    numbers = {
        name: total(results, name)
        for name in (
            "code_used",
            "code_runs",
            "code_ok",
            "code_failed",
            "code_corrected",
            "right_code_runs",
            "right_code_ok",
        )
    }
    assert numbers == {
        "code_used": 1, "code_runs": 4, "code_ok": 2, "code_failed": 1, "code_corrected": 2, "right_code_runs": 4,
        "right_code_ok": 2,
    }  # fmt: skip
    assert total(said("\\boxed{x}"), "code_used") == 0


def test_rewards_are_named() -> None:
    (last,) = said("\\boxed{0.5}", right=2.0, wrong=-1.0)
    assert last.reward == -1.0 and last.rewards == {"answer": -1.0}
    assert make(right=2.0, wrong=-1.0).schema().reward_range == (-1.0, 2.0)


def test_a_stored_episode_is_one_turn_with_a_pause(tmp_path: Path) -> None:
    """What is cloned has the very tokens of what is sampled: no end of turn where generation pauses."""
    env = make()
    speech = speech_of(tiny()).to(env.schema())
    episodes = collected("math_python", speech, episodes=4, train=12, validation=4, test=4)
    assert all(episode.success and len(episode.turns) == 2 for episode in episodes)
    end = speech.renderer.end_of_turn_id
    for first, last in (episode.turns for episode in episodes):
        assert first.finish_reason is FinishReason.STOP_STRING and end not in first.action_ids
        assert first.text.endswith("```output") and last.action_ids[-1] == end
        assert speech.renderer.text(last.context_ids) == first.observation[0].content
    TrajectoryWriter(tmp_path).write(0, episodes)
    schemas = {"math_python": env.schema()}
    for tokens in ("stored", "texts"):
        settings = OfflineSettings(paths=(str(tmp_path),), tokens=tokens)  # type: ignore[arg-type]
        data = load_offline(settings, speech_of(tiny()), schemas=schemas)
        for one, other in zip(episodes, data.trajectories, strict=True):
            assert one.segment_ids(0).tolist() == other.segment_ids(0).tolist()


# --- baselines --------------------------------------------------------------------------------------------------------


def test_expert_and_chance() -> None:
    env = make()
    assert score(env, expert_policy, "train", 4) == (1.0, 1.0, 2.0)
    assert score(env, random_policy(0), "train", 4).success < 0.3
    env.close()


def test_a_beginner_has_the_habits_that_were_asked_for() -> None:
    env = make_env("math_python", tasks={"type": "generated", "levels": [1]}, novice={"code": 0.5, "slips": 0.4})
    results = [play(env, expert_policy, "train", index, 0, 5) for index in range(80)]
    with_code = [r for r in results if total(r, "code_used")]
    assert 0.3 < len(with_code) / 80 < 0.7
    failed = sum(total(r, "code_failed") for r in with_code) / len(with_code)
    assert 0.15 < failed < 0.65
    assert all(r[-1].success == (total(r, "code_ok") > 0) for r in with_code)
    env.close()


@pytest.mark.parametrize("calls", [1, 2])
def test_a_beginner_mends_a_program_where_there_may_be_another_run(calls: int) -> None:
    easy = {"type": "generated", "levels": [1]}
    env = make_env("math_python", tasks=easy, calls=calls, novice={"code": 1.0, "slips": 1.0, "mends": 0.5})
    results = [play(env, expert_policy, "train", index, 0, 5) for index in range(40)]
    env.close()
    mended = [r for r in results if total(r, "code_corrected")]
    assert (8 < len(mended) < 32) if calls == 2 else not mended
    for result in results:
        expected = 2 if result in mended else 1
        assert (total(result, "code_runs"), len(result)) == (expected, expected + 1)
        assert result[-1].success or result not in mended


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    make().release()
