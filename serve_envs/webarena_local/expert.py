"""A scripted worker: the next action for a task from what the page shows now."""

from __future__ import annotations

import re
from typing import Any

from serve_envs.webarena_local.tasks import SiteTask
from serve_envs.webarena_local.world import make_world
from serve_envs.webnav.view import Node, View

_FIELDS = ("textbox", "searchbox", "combobox", "spinbutton")
_LABELS = {"title": "Title", "priority": "Priority", "status": "Status", "assignedto": "Assigned To",
           "message": "Change Note", "username": "Login Name", "realname": "Name", "roles": "Roles",
           "phone": "Phone", "name": "Keyword"}  # fmt: skip


def next_action(task: SiteTask, view: View) -> str:
    """What to do now; the same page always gets the same answer.

    Args:
        task: the task.
        view: what the page shows.
    """
    if task.kind == "find":
        return _find(task, view)
    change = task.change
    assert change is not None
    if re.search(r"\b(created|edited ok)\b", _texts(view)):
        return "stop"
    wanted = dict(change.values)
    if change.of == "issue" and change.key is None:
        return _page(view, "/issue?@template=item", "Create New") or _fill(view, wanted, "Submit New Entry")
    if change.of == "issue":
        assert change.key is not None
        return _open_issue(view, change.key) or _fill(view, wanted, "Submit Changes")
    if change.of == "keyword":
        return _page(view, "/keyword?@template=item", "Create New", second=True) or _fill(
            view, wanted, "Submit New Entry"
        )
    if change.key is None:
        secret = re.search(r'the password "([^"]+)"', task.text)
        assert secret is not None
        fields = wanted | {"password": secret[1], "confirm": secret[1], "address": f"{wanted['username']}@example.com"}
        return _page(view, "/user?@template=item", "Add User") or _fill(view, fields, "Submit New Entry")
    return _open_user(view, change.key) or _fill(view, wanted, "Submit Changes")


def _find(task: SiteTask, view: View) -> str:
    assert task.answer is not None
    answer = f'answer "{task.answer[0]}"'
    if "How many" in task.text:
        return _page(view, "/issue?", "Show All") or answer
    world = make_world(task.world)
    issue = next(issue for issue in world.issues if issue.title in task.text)
    if "phone number" in task.text and "/user" in view.url:
        return _open_user(view, issue.assigned) or answer
    opened = _open_issue(view, str(world.number(issue)))
    return opened or (_click(view, "User List") if "phone number" in task.text else answer)


def _open_issue(view: View, number: str) -> str | None:
    """Go to an issue by the box for its number; None where we are there."""
    if re.search(rf"/issue{number}(\?.*)?$", view.url):
        return None
    at = next(at for at, node in enumerate(view.nodes) if node.role == "button" and node.name == "Show issue:")
    box = next(node for node in view.nodes[at:] if node.role in _FIELDS)
    return f"click {view.nodes[at].id}" if box.state.get("value") == number else f'type {box.id} "{number}"'


def _open_user(view: View, login: str) -> str | None:
    """Go to a person through the list of all; None where we are there."""
    if re.search(r"/user\d+(\?.*)?$", view.url):
        return None
    link = next((node for node in view.nodes if node.role == "link" and node.name == login), None)
    return f"click {link.id}" if link and "/user" in view.url else _click(view, "User List")


def _page(view: View, path: str, link: str, *, second: bool = False) -> str | None:
    if path in view.url:
        return None
    found = [node for node in view.nodes if node.role == "link" and node.name == link]
    return f"click {found[-1 if second else 0].id}"


def _click(view: View, name: str) -> str:
    found = next(node for node in view.nodes if node.role in ("link", "button") and node.name == name)
    return f"click {found.id}"


def _fill(view: View, wanted: dict[str, Any], button: str) -> str:
    for field, value in wanted.items():
        node = _field(view, field)
        if node is None:
            continue
        if node.role == "combobox":
            if node.state.get("selected") != [value]:
                return f'select {node.id} "{value}"'
        elif node.state.get("value") != value:
            return f'type {node.id} "{value}"'
    return _click(view, button)


def _field(view: View, field: str) -> Node | None:
    """The field behind a label."""
    label = _LABELS.get(field) or {"password": "Login Password", "confirm": "Confirm Password",
                                   "address": "E-mail address"}[field]  # fmt: skip
    nodes = list(view.nodes)
    for at, node in enumerate(nodes):
        if node.role in ("text", "clickable") and node.name.strip(" :*").lower() == label.lower():
            return next((one for one in nodes[at + 1 :] if one.role in _FIELDS), None)
    named = (node for node in nodes if node.role in _FIELDS and node.name.strip(" :*").lower() == label.lower())
    return next(named, None)


def _texts(view: View) -> str:
    return " ".join(node.name for node in view.nodes if node.role == "text")
