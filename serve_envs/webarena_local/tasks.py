"""The tasks of a world, in five kinds, each with what must hold in the database afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from serve_envs.webarena_local.world import PRIORITIES, STATUSES, make_world, spare_titles

Snapshot = Mapping[str, Any]
KINDS = ("create", "edit", "comment", "find", "administer")
WORLDS: Mapping[str, tuple[int, ...]] = {"train": (0, 1, 2, 3), "validation": (4,), "test": (5, 6)}
"""Split to its worlds: no person, issue or task is in two splits."""

_EACH = 12  # tasks of a kind in a world


@dataclass(frozen=True, slots=True)
class Change:
    """What a task changes.

    Attributes:
        of: ``issue``, ``user`` or ``keyword``.
        key: the issue's number, the user's login or the keyword; None for something new.
        values: fields and what they must be afterwards. ``message`` is a new comment.
    """

    of: str
    key: str | None
    values: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SiteTask:
    """One task.

    Attributes:
        world: the tracker's content.
        kind: of :data:`KINDS`.
        text: what the agent is asked.
        change: what must have changed, and nothing else may; None where only an answer is wanted.
        answer: the answer that is wanted; None where only a change is.
    """

    world: int
    kind: str
    text: str
    change: Change | None = None
    answer: tuple[str, ...] | None = None


@cache
def make_splits() -> dict[str, tuple[SiteTask, ...]]:
    """The tasks of every split; kinds take turns."""
    splits = {}
    for split, worlds in WORLDS.items():
        by_kind = [[task for world in worlds for task in _TASKS[kind](world)] for kind in KINDS]
        splits[split] = tuple(task for row in zip(*by_kind, strict=True) for task in row)
    return splits


def _create(number: int) -> list[SiteTask]:
    world, draw = make_world(number), random.Random(f"create {number}")
    tasks = []
    for at in range(_EACH):
        title = spare_titles(number)[at % 10]
        priority, person = draw.choice(PRIORITIES), draw.choice(world.people)
        values: list[tuple[str, Any]] = [("title", title), ("priority", priority)]
        text = f'Create a new issue with the title "{title}" and the priority "{priority}"'
        if at % 2 or at >= 10:
            values.append(("assignedto", person.login))
            text += f', assigned to "{person.login}"'
        tasks.append(SiteTask(number, "create", f"{text}.", Change("issue", None, tuple(values))))
    return tasks


def _edit(number: int) -> list[SiteTask]:
    world, draw = make_world(number), random.Random(f"edit {number}")
    tasks = []
    for at, issue in enumerate(draw.sample(world.issues, _EACH)):
        field, told, new = (
            ("status", "status", draw.choice([one for one in STATUSES if one != issue.status])),
            ("priority", "priority", draw.choice([one for one in PRIORITIES if one != issue.priority])),
            ("assignedto", "assignee", draw.choice([one.login for one in world.people if one.login != issue.assigned])),
        )[at % 3]
        change = Change("issue", str(world.number(issue)), ((field, new),))
        tasks.append(SiteTask(number, "edit", f'Change the {told} of the issue "{issue.title}" to "{new}".', change))
    return tasks


def _comment(number: int) -> list[SiteTask]:
    world, draw = make_world(number), random.Random(f"comment {number}")
    notes = ("Waiting for spare parts.", "I can reproduce this.", "Please test again.", "Moved to next week.",
             "The vendor was called.", "This is the same as last year.")  # fmt: skip
    tasks = []
    for issue in draw.sample(world.issues, _EACH):
        note = f"{draw.choice(notes)} Ticket {draw.randrange(100, 1000)}."
        change = Change("issue", str(world.number(issue)), (("message", note),))
        tasks.append(SiteTask(number, "comment", f'Add the comment "{note}" to the issue "{issue.title}".', change))
    return tasks


def _find(number: int) -> list[SiteTask]:
    world, draw = make_world(number), random.Random(f"find {number}")
    tasks = []
    for at, issue in enumerate(draw.sample(world.issues, _EACH)):
        person = next(one for one in world.people if one.login == issue.assigned)
        same = sum(one.priority == issue.priority for one in world.issues)
        question, answer = (
            (f'Who is assigned to the issue "{issue.title}"?', (person.login, person.name)),
            (f'What is the number of the issue "{issue.title}"?', (str(world.number(issue)),)),
            (f'How many issues have the priority "{issue.priority}"?', (str(same),)),
            (f'What is the phone number of the user who is assigned to the issue "{issue.title}"?', (person.phone,)),
        )[at % 4]
        tasks.append(SiteTask(number, "find", question, answer=answer))
    return tasks


def _administer(number: int) -> list[SiteTask]:
    world, draw = make_world(number), random.Random(f"administer {number}")
    tasks = []
    for at in range(_EACH):
        phone = f"555-{draw.randrange(1000, 10000)}"
        person = world.people[at % len(world.people)]
        word = f"{draw.choice(('spring', 'summer', 'autumn', 'winter'))}-{draw.randrange(10, 100)}"
        login, name = f"new{draw.randrange(100, 1000)}", f"Robin Nr{draw.randrange(10, 100)}"
        text, change = (
            (f'Create the keyword "{word}".', Change("keyword", None, (("name", word),))),
            (
                f'Change the phone number of the user "{person.login}" to "{phone}".',
                Change("user", person.login, (("phone", phone),)),
            ),
            (
                f'Create a user with the login name "{login}", the name "{name}", the password "secret-{at}", the role '
                f'"User" and the e-mail address "{login}@example.com".',
                Change("user", None, (("username", login), ("realname", name), ("roles", "User"))),
            ),
        )[at % 3]
        tasks.append(SiteTask(number, "administer", text, change))
    return tasks


_TASKS: Mapping[str, Callable[[int], list[SiteTask]]] = {
    "create": _create,
    "edit": _edit,
    "comment": _comment,
    "find": _find,
    "administer": _administer,
}


def is_done(task: SiteTask, before: Snapshot, after: Snapshot, answer: str | None) -> bool:
    """Whether the database holds what the task asks for and nothing else was changed, and the answer is right.

    A comment may move an issue to the status ``chatting``, as the tracker itself does.
    """
    if task.answer is not None:
        said = " ".join((answer or "").strip(" .\"'").split()).casefold()
        return before == after and said in [one.casefold() for one in task.answer]
    change = task.change
    assert change is not None
    wanted = dict(change.values)
    for of in ("issue", "user", "keyword"):
        old, new = before[of], after[of]
        fresh = [key for key in new if key not in old]
        changed = [key for key in old if new.get(key) != old[key]]
        if of != change.of:
            if fresh or changed:
                return False
        elif change.key is None:
            if changed or len(fresh) != 1 or any(new[fresh[0]].get(field) != to for field, to in wanted.items()):
                return False
        elif fresh or changed != [change.key] or not _changed_as(old[change.key], new[change.key], wanted):
            return False
    return True


def _changed_as(old: Mapping[str, Any], new: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    if "message" in wanted:
        kept = {field: value for field, value in old.items() if field not in ("messages", "status")}
        return (
            all(new[field] == value for field, value in kept.items())
            and new["status"] in (old["status"], "chatting")
            and new["messages"] == [*old["messages"], wanted["message"]]
        )
    return new == {**old, **wanted}
