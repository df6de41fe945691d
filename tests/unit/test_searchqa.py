"""searchqa: questions against the pages they are made from, scoring by hand, and one answer an episode."""

from __future__ import annotations

import random
import re

import pytest
from installed import require_env

require_env("searchqa")

from rllib_agentic.envs.baselines import expert_policy, random_policy, score  # noqa: E402
from serve_envs.searchqa.actions import read_action  # noqa: E402
from serve_envs.searchqa.env import SearchQA  # noqa: E402
from serve_envs.searchqa.library import Library, open_library  # noqa: E402
from serve_envs.searchqa.questions import Question  # noqa: E402
from serve_envs.searchqa.scoring import exact_match, f1  # noqa: E402
from serve_envs.searchqa.texts import PAGE_CHARS, documents  # noqa: E402

SOURCES = ("factbook", "fanoutqa", "foldoc")


@pytest.fixture(scope="module")
def env() -> SearchQA:
    return SearchQA()


@pytest.fixture(scope="module")
def library() -> Library:
    return open_library(SOURCES)


def questions(env: SearchQA) -> list[Question]:
    return [question for split in env._splits.values() for question in split]


def whole(library: Library, title: str) -> str:
    page, text, number = library.open(title), "", 1
    while page is not None:
        text += page.text
        number += 1
        page = library.open(f"{title} ({number})")
    return text


def test_every_page_of_a_chain_leads_to_the_next(env: SearchQA, library: Library) -> None:
    """Read the pages as a person would: the longest border, the largest partner, the answer, are on them."""
    for question in questions(env):
        if question.category == "fanout":
            continue
        assert len(question.lookups) == int(question.category[0])
        steps = question.chain.split(" > ")[1:]
        titles = [title for _, title in question.lookups]
        for step, title, then in zip(steps, titles[:-1], titles[1:], strict=True):
            text, country = whole(library, title), then.partition(":")[0]
            borders = text.partition("border countries: ")[2].partition("\n")[0]
            if step in ("longest", "shortest"):
                lengths = [float(km.replace(",", "")) for km in re.findall(r"([\d,.]+) km", borders)]
                wanted = (max if step == "longest" else min)(lengths)
                near = re.search(rf"([^;:]*?)\s(?:\([^)]*\)\s*)?{wanted:,g} km".replace(",", ",?"), borders)
                assert near is not None, (question, text)
                assert_names(near[1], country)
            elif step in ("exports", "imports"):
                shares = {float(percent): name for name, percent in re.findall(r"([A-Z][^\d%,]*?) ([\d.]+)%", text)}
                assert_names(shares[max(shares)], country)
            else:  # the chain begins with a description: a fact that this page tells, and no other country's
                assert then.partition(":")[0] == title.partition(":")[0]
                assert any(word in question.text for word in text.split())
        assert question.accepted[0] in whole(library, titles[-1]), question


def assert_names(shown: str, country: str) -> None:
    other_names = {
        "USA": "United States",
        "US": "United States",
        "UK": "United Kingdom",
        "UAE": "United Arab Emirates",
        "Democratic Republic of the Congo": "DRC",
    }
    shown = shown.strip().removeprefix("the ").strip()
    words = set(re.findall(r"\w+", other_names.get(shown, shown))) & set(re.findall(r"\w+", country))
    assert words or shown in ("Burma", "Turkey", "DRC", "Cabo Verde"), (shown, country)


def test_chains_are_in_one_split_and_answers_are_not_to_be_guessed(env: SearchQA) -> None:
    owners: dict[str, str] = {}
    for split, members in env._splits.items():
        for question in members:
            assert owners.setdefault(question.chain, split) == split
        commonest = max((q.accepted[0] for q in members), key=[q.accepted[0] for q in members].count)
        assert sum(q.accepted[0] == commonest for q in members) / len(members) < 0.05
        assert {q.category for q in members} == {"2 hops", "3 hops", "4 hops", "fanout"}


def test_the_search_finds_what_the_expert_looks_for(env: SearchQA, library: Library) -> None:
    wanted = [lookup for question in env._splits["test"] for lookup in question.lookups]
    found = [title in [page.title for page in library.search(query, 5)] for query, title in wanted]
    assert sum(found) / len(found) > 0.97


def test_pages_are_short_and_titles_differ() -> None:
    pages = list(documents(SOURCES))
    assert len({page.title for page in pages}) == len(pages) > 40_000
    assert max(len(page.text) for page in pages) <= PAGE_CHARS
    assert all(page.text for page in pages)


@pytest.mark.parametrize(
    ("answer", "accepted", "right", "overlap"),
    [
        ("Bern", "Bern", True, 1.0),
        ("  the BERN! ", "Bern", True, 1.0),
        ("São Tomé", "Sao Tome", True, 1.0),
        ("1,234,567", "1234567", True, 1.0),
        ("1,234", "1.234", False, 0.0),
        (".de", "de", True, 1.0),
        ("the city of Bern", "Bern", False, 0.5),  # precision 1/3, recall 1
        ("Zurich", "Bern", False, 0.0),
        ("q: 2; p: 1", "p: 1; q: 2", True, 1.0),
        ("p: 1", "p: 1; q: 2", False, 2 / 3),  # precision 1, recall 1/2
        ("p: 2; q: 1", "p: 1; q: 2", False, 1.0),  # the words are right, the pairs are not
        ("", "Bern", False, 0.0),
    ],
)
def test_scores_by_hand(answer: str, accepted: str, right: bool, overlap: float) -> None:
    assert exact_match(answer, (accepted,)) is right
    assert f1(answer, (accepted,)) == pytest.approx(overlap)
    assert exact_match(answer, ("nothing", accepted)) is right


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("search: capital of Chad", ("search", "capital of Chad")),
        ("Search[capital of Chad]", ("search", "capital of Chad")),
        ("Thought: I know\nAction: answer: N'Djamena.", ("answer", "N'Djamena")),
        ("<think>a</think><search>x</search> then <open>Chad: Capital", ("open", "Chad: Capital")),
        ('<tool_call>{"name": "open", "arguments": {"title": "Chad: Capital"}}</tool_call>', ("open", "Chad: Capital")),
        ('<tool_call>{"name": "fly", "arguments": {}}</tool_call>', None),
        ('<tool_call>{"name": "open", "arguments": {"title": 3}}</tool_call>', None),
        ("answer:", None),
        ("research: x", None),
        ("", None),
    ],
)
def test_ways_of_writing_an_action(text: str, action: tuple[str, str] | None) -> None:
    assert read_action(text) == action


def test_one_answer_ends_the_episode(env: SearchQA) -> None:
    env.reset("test", 0, 0)
    wrong = env.step("answer: I do not know")
    assert (wrong.terminated, wrong.success, wrong.reward) == (True, False, 0.0)
    assert wrong.metrics["f1"] == 0.0
    with pytest.raises(RuntimeError):
        env.step(f"answer: {env._splits['test'][0].accepted[0]}")
    env.reset("test", 0, 0)
    assert env.step("open: no such page").metrics["failed_action"] == 1.0
    assert env.step("how?").metrics["invalid_action"] == 1.0
    right = env.step(f"<answer>{env._splits['test'][0].accepted[0]}</answer>")
    assert (right.terminated, right.success, right.reward) == (True, True, 1.0)


def test_half_an_answer_pays_half_where_f1_is_asked_for() -> None:
    env = SearchQA(reward="f1")
    number = next(n for n, q in enumerate(env._splits["test"]) if q.category == "fanout" and "; " in q.accepted[0])
    env.reset("test", number, 0)
    part = env._splits["test"][number].accepted[0].partition(";")[0]
    result = env.step(f"answer: {part}")
    assert 0 < result.reward == result.metrics["f1"] < 1
    assert not result.success


def test_random_actions_are_well_formed_and_the_experts_are_right(env: SearchQA) -> None:
    draw = random.Random(0)
    verbs = set()
    for index in range(40):
        env.reset("test", index, 0)
        action = env.random_action(draw)
        verbs.add(action.partition(":")[0])
        result = env.step(action)
        assert result.metrics == {"invalid_action": 0.0, "failed_action": 0.0} or result.terminated
    assert verbs == {"search", "open", "answer"}
    assert score(env, expert_policy, "test", max_turns=100, episodes=40).success == 1.0
    assert score(env, random_policy(0), "test", max_turns=20, episodes=40).success <= 0.1
