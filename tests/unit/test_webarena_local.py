"""webarena_local without a browser: worlds, tasks, and the judge on a real Roundup database."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from installed import require_env

require_env("webarena_local")

from serve_envs.webarena_local import site  # noqa: E402
from serve_envs.webarena_local.env import _STOP, WebArenaLocal  # noqa: E402
from serve_envs.webarena_local.tasks import KINDS, WORLDS, SiteTask, is_done, make_splits  # noqa: E402
from serve_envs.webarena_local.world import World, make_world  # noqa: E402

TASKS = [task for tasks in make_splits().values() for task in tasks]


def snapshot_of(world: World) -> dict[str, Any]:
    """What a tracker with this world in it must hold."""
    issues = {
        str(number): {
            "title": issue.title,
            "priority": issue.priority,
            "status": issue.status,
            "assignedto": issue.assigned,
            "keyword": sorted(issue.keywords, key=world.keywords.index),
            "messages": [],
        }
        for number, issue in enumerate(world.issues, start=1)
    }
    users: dict[str, Any] = {
        login: {"username": login, "realname": None, "phone": None, "roles": roles}
        for login, roles in (("admin", "Admin"), ("anonymous", "Anonymous"))
    }
    users |= {
        one.login: {"username": one.login, "realname": one.name, "phone": one.phone, "roles": "User"}
        for one in world.people
    }
    return {"issue": issues, "user": users, "keyword": {word: {"name": word} for word in sorted(world.keywords)}}


def changed_by(task: SiteTask, before: dict[str, Any]) -> dict[str, Any]:
    """The database after the task was done, and nothing else."""
    after = copy.deepcopy(before)
    change = task.change
    if change is None:
        return after
    wanted = dict(change.values)
    if change.key is None:
        empty: dict[str, dict[str, Any]] = {
            "issue": {"status": "unread", "assignedto": None, "keyword": [], "messages": []},
            "user": {"phone": None},
        }
        key = {"issue": "31", "user": wanted.get("username"), "keyword": wanted.get("name")}[change.of]
        after[change.of][key] = {**empty.get(change.of, {}), **wanted}
    elif "message" in wanted:
        after["issue"][change.key]["messages"].append(wanted["message"])
    else:
        after[change.of][change.key] |= wanted
    return after


def test_there_are_enough_tasks_of_five_kinds_and_no_split_shares_any() -> None:
    splits = make_splits()
    assert sum(map(len, splits.values())) >= 100
    for tasks in splits.values():
        assert len(set(Counter(task.kind for task in tasks).values())) == 1
        assert {task.kind for task in tasks} == set(KINDS)
    texts = [{task.text for task in tasks} for tasks in splits.values()]
    titles = [{issue.title for world in worlds for issue in make_world(world).issues} for worlds in WORLDS.values()]
    for one in range(3):
        for other in range(one):
            assert not titles[one] & titles[other]
            assert not {text for text in texts[one] & texts[other] if "How many" not in text}


@pytest.mark.parametrize("kind", KINDS)
def test_the_judge_wants_the_change_and_nothing_but_the_change(kind: str) -> None:
    for task in (task for task in TASKS if task.kind == kind):
        before = snapshot_of(make_world(task.world))
        after = changed_by(task, before)
        answer = task.answer[0] if task.answer else None
        assert is_done(task, before, after, answer), task
        if task.answer:
            assert is_done(task, before, after, f" {answer}. ")
            assert not is_done(task, before, after, None) and not is_done(task, before, after, "nobody")
        else:
            assert not is_done(task, before, before, None), task
        spoilt = copy.deepcopy(after)
        spoilt["issue"]["30"]["title"] += "!"
        assert not is_done(task, before, spoilt, answer)
        spoilt = copy.deepcopy(after)
        spoilt["keyword"]["unwanted"] = {"name": "unwanted"}
        assert not is_done(task, before, spoilt, answer)
        spoilt = copy.deepcopy(after)
        del spoilt["user"]["anonymous"]
        assert not is_done(task, before, spoilt, answer)


def test_a_comment_may_set_the_status_that_the_tracker_sets() -> None:
    task = next(task for task in TASKS if task.kind == "comment")
    before = snapshot_of(make_world(task.world))
    after = changed_by(task, before)
    assert task.change is not None and task.change.key is not None
    after["issue"][task.change.key]["status"] = "chatting"
    assert is_done(task, before, after, None)
    after["issue"][task.change.key]["status"] = "resolved"
    assert not is_done(task, before, after, None)


def test_a_real_tracker_holds_the_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.roundup.date, "utcnow", lambda: site._NOW)
    site._build(tmp_path / "home", make_world(4))
    assert site._read(tmp_path / "home" / "db" / "db") == snapshot_of(make_world(4))


@pytest.mark.parametrize(
    ("line", "answer"),
    [("stop", ""), ("stop [4]", "4"), ('answer "Ada Abel"', "Ada Abel"), ("Answer: 4", "4"), ("answer 4", "4")],
)
def test_ways_to_stop(line: str, answer: str) -> None:
    match = _STOP.fullmatch(line)
    assert match is not None
    assert next((part for part in match.groups() if part), "") == answer


def test_what_only_looks_like_a_stop() -> None:
    assert _STOP.fullmatch("stopwatch") is None
    assert _STOP.fullmatch("click 4") is None


def test_kinds_can_be_chosen() -> None:
    env = WebArenaLocal(kinds=("find",))
    assert {task.kind for tasks in env._splits.values() for task in tasks} == {"find"}
    assert env.schema().splits["test"] == 24


RACE = """
import ast, gc, sys, threading
from serve_envs.webarena_local.site import one_at_a_time

class Garbage:  # whose end lets other threads run
    def __del__(self):
        for _ in range(50): pass

def many():
    for _ in range(250):
        garbage = Garbage()
        garbage.itself = garbage
        del garbage
        try:
            read(text)
        except SystemError as error:
            errors.append(error)

text = repr({f"key {i}": ("a", [1, 2, {"x": i}]) for i in range(60)})
sys.setswitchinterval(1e-6)
gc.set_threshold(50)
read, errors = eval(sys.argv[1])(ast.literal_eval), []
threads = [threading.Thread(target=many) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(errors))
"""


def test_sign_ins_are_read_in_many_threads_at_once() -> None:  # without the lock, CPython 3.11 failed 350 times of 2000
    command = [sys.executable, "-c", RACE, "one_at_a_time"]
    assert subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout == "0\n"
