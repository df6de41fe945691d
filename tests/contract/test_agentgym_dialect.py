"""AgentGym's dialect over a real HTTP server, row by row as the clients of its repository use it.

The rows stand here a second time, written from the repository's clients, so that a slip in our table shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from counter_env import CounterEnv, Ledger
from http_service import served
from installed import require_env

from rllib_agentic.envs.agentgym_styles import AGENTGYM_STYLES
from rllib_agentic.envs.hosting import EnvHost
from serve_envs.gateway import make_http_app
from serve_envs.worker import EnvWorker


@contextmanager
def hosted(name: str, max_sessions: int = 256) -> Iterator[tuple[httpx.Client, Ledger]]:
    """A counter under AgentGym's name for an environment, so that the gateway picks that environment's row."""
    ledger = Ledger()
    worker = EnvWorker(EnvHost(partial(CounterEnv, ledger, name=name)), max_sessions=max_sessions)
    with (
        served(make_http_app(worker)) as url,
        httpx.Client(base_url=f"{url}/agentgym", timeout=20, trust_env=False) as http,
    ):
        yield http, ledger


def post(http: httpx.Client, path: str, **body: object):
    response = http.post(path, json=body) if body else http.post(path)
    assert response.status_code == 200, response.text
    return response.json()


# name -> (create body, session from the create answer, session's field, reset fields, observation of a reset,
#          fields of a step's answer, observation's field, done's field)
ROWS: dict[str, tuple[dict[str, Any], Callable, str, dict[str, Any], Callable, set[str], str, str]] = {
    "babyai": ({}, lambda a: a["id"], "id", {"data_idx": 3}, lambda a: a["observation"],
               {"observation", "reward", "score", "done"}, "observation", "done"),
    "sciworld": ({}, lambda a: a["id"], "id", {"data_idx": 3}, lambda a: a["task_description"] + a["observation"],
                 {"observation", "reward", "score", "done"}, "observation", "done"),
    "textcraft": ({"commands": None, "goal": None}, lambda a: a["id"], "id", {"data_idx": 3},
                  lambda a: a["observation"], {"observation", "reward", "done"}, "observation", "done"),
    "alfworld": ({}, lambda a: a["id"], "id", {"game": 3, "world_type": "Text"}, lambda a: a["observation"],
                 {"observation", "reward", "available_actions", "done"}, "observation", "done"),
    "maze": ({}, lambda a: a["id"], "id", {"game": 3}, lambda a: a["observation"],
             {"observation", "reward", "done"}, "observation", "done"),
    "wordle": ({}, lambda a: a["id"], "id", {"seed": 3}, lambda a: a["observation"],
               {"observation", "reward", "done"}, "observation", "done"),
    "searchqa": ({"id": 0}, lambda a: a, "env_idx", {"id": 3}, lambda a: a,
                 {"observation", "reward", "done", "info"}, "observation", "done"),
    "sqlgym": ({}, lambda a: a, "env_idx", {"item_id": 3}, lambda a: a[0],
               {"state", "reward", "done", "info"}, "state", "done"),
    "webshop": ({}, lambda a: a, "env_idx", {"session_id": 3}, lambda a: a[0],
                {"state", "reward", "done", "info"}, "state", "done"),
    **{
        tool: ({"id": 0}, lambda a: a, "env_idx", {"id": 3}, lambda a: a,
               {"observation", "reward", "done"}, "observation", "done")
        for tool in ("weather", "movie", "academia", "todo", "sheet")
    },
    "webarena": ({}, lambda a: a["env_idx"], "env_idx", {"seed": 0, "idx": 3}, lambda a: a["observation"],
                 {"observation", "reward", "terminated", "truncated", "info"}, "observation", "terminated"),
}  # fmt: skip


def test_every_row_is_tried() -> None:
    assert set(ROWS) == set(AGENTGYM_STYLES)


@pytest.mark.parametrize("name", ROWS)
def test_an_episode_in_each_row(name: str) -> None:
    create, session_of, field, task, first_of, fields, observation, done = ROWS[name]
    with hosted(name) as (http, ledger):
        session = session_of(post(http, "/create", **create))
        assert isinstance(session, int)
        assert session < 2**53
        first = post(http, "/reset", **{field: session}, **task)
        assert first_of(first) == "TASK train 3 0"
        step = post(http, "/step", **{field: session}, action="inc")
        assert fields <= set(step)
        assert (step[observation], step["reward"], step[done]) == ("1", 0.1, False)
        if "score" in fields:
            score = post(http, "/step", **{field: session}, action="inc")["score"]
            assert score == pytest.approx(20.0 if name == "sciworld" else 0.2)  # the rewards so far
        if "available_actions" in fields:
            assert step["available_actions"] == ["inc", "end"]
        if name != "babyai":
            seen = http.get(f"/observation?{field}={session}").json()
            assert seen in ("1", "2")
        end = post(http, "/step", **{field: session}, action="end")
        assert (end["reward"], end[done]) == (1.0, True)
        again = post(http, "/step", **{field: session}, action="inc")
        assert "error" in again  # AgentGym's way: status 200
        assert first_of(post(http, "/reset", **{field: session}, **task)) == "TASK train 3 0"
        assert post(http, "/close", **{field: session}) == {"closed": True}
        deadline = time.monotonic() + 20
        while ledger.made != ledger.closed and time.monotonic() < deadline:
            time.sleep(0.005)  # objects are closed beside the answer
        assert ledger.made == ledger.closed


def test_tasks_are_numbered_through_all_splits_or_within_one() -> None:
    with hosted("babyai") as (http, _):
        session = post(http, "/create")["id"]

        def first(path: str, number: object) -> dict:
            return post(http, path, id=session, data_idx=number)

        assert first("/reset", 9)["observation"] == "TASK train 9 0"
        assert first("/reset", 10)["observation"] == "TASK test 0 0"
        assert first("/test/reset", 4)["observation"] == "TASK test 4 0"
        assert first("/babyai/reset", 14)["observation"] == "TASK test 4 0"  # LMRL-Gym's servers name the game there
        for path, wrong in [("/reset", 15), ("/reset", -1), ("/test/reset", 5), ("/dev/reset", 0), ("/reset", "x")]:
            assert "error" in first(path, wrong)
        assert first("/reset", 0)["observation"] == "TASK train 0 0"


def test_errors_come_with_status_200_and_the_server_lives() -> None:  # EV03, EV14
    with hosted("babyai") as (http, _):
        session = post(http, "/create")["id"]
        for path, body in [
            ("/step", {"id": session, "action": "inc"}),  # before a reset
            ("/reset", {"id": session + 1, "data_idx": 0}),  # an id that nobody gave out
            ("/reset", {"id": "7", "data_idx": 0}),
            ("/step", {"id": 0, "action": "inc"}),
            ("/close", {"id": None}),
        ]:
            assert "error" in post(http, path, **body)
        assert post(http, "/reset", id=session, data_idx=0)["observation"] == "TASK train 0 0"
        assert "error" in post(http, "/step", id=session, action=7)
        assert "error" in post(http, "/step", id=session, action="raise")
        assert post(http, "/reset", id=session, data_idx=0)["observation"] == "TASK train 0 0"  # after a failure
        assert post(http, "/close", id=session) == {"closed": True}
        assert post(http, "/close", id=session) == {"closed": False}
        assert post(http, "/step", id=session, action="inc")["code"] == "session_closed"
        assert post(http, "/reset", id=session, data_idx=0)["code"] == "session_closed"
        assert "error" in http.get(f"/observation?id={session}").json()
        assert http.get("/").json() == "ok"


def test_a_full_service_says_so() -> None:  # EV05
    with hosted("babyai", max_sessions=1) as (http, _):
        first, second = (post(http, "/create")["id"] for _ in range(2))
        post(http, "/reset", id=first, data_idx=0)
        assert post(http, "/reset", id=second, data_idx=0)["code"] == "full"
        post(http, "/close", id=first)
        assert post(http, "/reset", id=second, data_idx=0)["observation"] == "TASK train 0 0"


def test_details_of_a_session() -> None:
    with hosted("textcraft") as (http, _):
        session = post(http, "/create", commands=None, goal=None)
        assert (session["observation"], session["reward"], session["done"]) == ("TASK train 0 0", 0, False)
        query = f"?id={session['id']}"
        post(http, "/step", id=session["id"], action="inc")
        detail = http.get(f"/detail{query}").json()
        assert (detail["observation"], detail["reward"], detail["done"]) == ("1", 0.1, False)
        assert http.get(f"/goal{query}").json() == "TASK train 0 0"
        assert http.get(f"/commands{query}").json() == "TASK train 0 0"
        assert http.get(f"/available_actions{query}").json() == ["inc", "end"]
    with hosted("webshop") as (http, _):
        session = post(http, "/create")
        post(http, "/reset", env_idx=session, session_id=0)
        clickables = http.get(f"/available_actions?env_idx={session}").json()
        assert clickables == {"has_search_bar": False, "clickables": ["inc", "end"]}
        assert set(http.get(f"/state?env_idx={session}").json()) == {"url", "html", "instruction_text"}


def test_real_textcraft() -> None:
    """The real environment: a game of its expert's through the dialect."""
    from serve_envs.textcraft.env import TextCraft

    with served(make_http_app(EnvWorker(EnvHost(TextCraft)))) as url:
        http = httpx.Client(base_url=f"{url}/agentgym/test", timeout=20, trust_env=False)
        session = post(http, "/create", commands=None, goal=None)["id"]
        first = post(http, "/reset", id=session, data_idx=5)["observation"]
        twin = TextCraft()
        told = twin.reset("test", 5, 0)
        assert first == told.messages[-1].content
        assert http.get(f"/commands?id={session}").json() + f"\n\nGoal: craft {told.info['goal']}." == first
        assert http.get(f"/goal?id={session}").json() == told.info["goal"]
        done = False
        while not done:
            action = twin.expert_action()
            expected = twin.step(action)
            answer = post(http, "/step", id=session, action=action)
            done = answer["done"]
            assert answer["observation"] == expected.observation.messages[0].content
        assert answer["reward"] == 1.0
        http.close()


def test_real_wordle_hands_out_its_vocabulary() -> None:
    """The client of the repository asks for it before its first reset."""
    from serve_envs.wordle.env import Wordle

    with served(make_http_app(EnvWorker(EnvHost(Wordle)))) as url:
        http = httpx.Client(base_url=f"{url}/agentgym", timeout=20, trust_env=False)
        session = post(http, "/create")["id"]
        words = http.get(f"/filtered_vocab?id={session}").json()
        assert len(words) > 1000 and all(len(word) == 5 for word in words)
        post(http, "/reset", id=session, seed=7)
        seen = post(http, "/step", id=session, action=" ".join(words[0]))
        assert set(seen) >= {"observation", "reward", "done"} and not seen["done"]
        http.close()


def test_real_maze_takes_the_repositorys_actions() -> None:
    from serve_envs.maze.env import MazeEnv

    with served(make_http_app(EnvWorker(EnvHost(MazeEnv)))) as url:
        http = httpx.Client(base_url=f"{url}/agentgym", timeout=20, trust_env=False)
        session = post(http, "/create")["id"]
        post(http, "/reset", id=session, game=0)
        twin = MazeEnv()
        twin.reset("train", 0, 0)
        for action in ("move up", "move left", "move down"):
            expected = twin.step(action.removeprefix("move ")).observation.messages[0].content
            assert post(http, "/step", id=session, action=action)["observation"] == expected
            assert "no action" not in expected
        http.close()


def test_real_alfworld_lists_what_can_be_said() -> None:
    require_env("alfworld")
    from serve_envs.alfworld.env import AlfWorld
    from serve_envs.alfworld.household import KINDS

    make = partial(AlfWorld, size="small", train=6, validation=6, test=6, processes=1)
    try:
        with served(make_http_app(EnvWorker(EnvHost(make)))) as url:
            http = httpx.Client(base_url=f"{url}/agentgym", timeout=60, trust_env=False)
            session = post(http, "/create")["id"]
            seen = post(http, "/reset", id=session, game=3, world_type="Text")
            twin = make()
            told = twin.reset("train", 3, 0)
            assert seen["observation"] == told.messages[-1].content
            assert (seen["task_type"], seen["available_actions"]) == (KINDS[3], list(told.actions or ()))
            while not seen["done"]:
                action = twin.expert_action()
                expected = twin.step(action)
                seen = post(http, "/step", id=session, action=f"Thought: next.\nAction: {action}")
                assert seen["observation"] == expected.observation.messages[0].content
                assert seen["available_actions"] == list(expected.observation.actions or ())
            assert seen["reward"] == 1.0
            twin.close()
            http.close()
    finally:
        AlfWorld.release()
