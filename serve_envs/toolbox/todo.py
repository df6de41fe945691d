"""A to-do list: projects with tasks that have a due day, a priority and labels."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from rllib_agentic.tools import ToolError, tool
from serve_envs.toolbox.assignment import Assignment, PlannedCall
from serve_envs.toolbox.names import words

_LABELS = ("calls", "errands", "online", "quick", "waiting")

Priority = Annotated[int, Field(ge=1, le=4)]


class Todo:
    """Five projects with five to nine tasks each.

    Args:
        draw: decides everything.
    """

    def __init__(self, draw: random.Random) -> None:
        self.today = date(2022, 1, 1) + timedelta(days=draw.randrange(900))
        self.projects = {10 + number: name for number, name in enumerate(draw.sample(words("projects"), 5))}
        things = draw.sample([f"{verb} {thing}" for verb in words("verbs") for thing in words("things")], 60)
        self.tasks: dict[int, dict[str, Any]] = {}
        for project in self.projects:
            for _ in range(draw.randint(5, 9)):
                self.tasks[200 + len(self.tasks)] = {
                    "project": project,
                    "content": things.pop(),
                    "due": (self.today + timedelta(days=draw.randint(-6, 14))).isoformat(),
                    "priority": draw.randint(1, 4),
                    "label": draw.choice(_LABELS),
                    "done": draw.random() < 0.25,
                }
        self._spare = things
        self._next = 200 + len(self.tasks)

    def snapshot(self) -> dict[str, Any]:
        """Every task by id, and every project."""
        tasks = {f"task {key}": dict(task) for key, task in self.tasks.items()}
        return tasks | {f"project {key}": name for key, name in self.projects.items()}

    def words(self) -> list[Any]:
        """Ids, days and contents."""
        days = sorted({task["due"] for task in self.tasks.values()})
        return [*self.projects, *self.tasks, *days, *(task["content"] for task in self.tasks.values())]

    @tool
    def today_is(self) -> str:
        """Tell today's date, as YYYY-MM-DD."""
        return self.today.isoformat()

    @tool
    def list_projects(self) -> dict[int, str]:
        """List all projects: id and name."""
        return self.projects

    @tool
    def list_tasks(self, project_id: int) -> dict[int, dict[str, Any]]:
        """List the tasks of a project, done ones included: id, content, due day, priority (4 is highest), label, done.

        Args:
            project_id: the project's id.
        """
        if project_id not in self.projects:
            raise ToolError(f"there is no project {project_id}")
        return {
            key: {name: value for name, value in task.items() if name != "project"}
            for key, task in self.tasks.items()
            if task["project"] == project_id
        }

    @tool
    def add_task(self, project_id: int, content: str, due: str, priority: Priority, label: str) -> dict[str, int]:
        """Add a task to a project; gives its id.

        Args:
            project_id: the project's id.
            content: what is to be done.
            due: due day, as YYYY-MM-DD.
            priority: from 1 to 4, the highest.
            label: calls, errands, online, quick or waiting.
        """
        if project_id not in self.projects:
            raise ToolError(f"there is no project {project_id}")
        key = self._next
        self._next += 1
        self.tasks[key] = {
            "project": project_id,
            "content": content,
            "due": _day(due),
            "priority": priority,
            "label": _label(label),
            "done": False,
        }
        return {"id": key}

    @tool
    def update_task(
        self, task_id: int, field: Literal["content", "due", "priority", "label", "project"], value: str | int
    ) -> str:
        """Change one field of a task.

        Args:
            task_id: the task's id.
            field: which field.
            value: its new value; for project the id of a project.
        """
        task = self._task(task_id)
        if field == "due":
            task["due"] = _day(str(value))
        elif field == "label":
            task["label"] = _label(str(value))
        elif field == "content":
            task["content"] = str(value)
        elif not isinstance(value, int):
            raise ToolError(f"{field} takes a whole number, not {value!r:.40}")
        elif field == "project" and value not in self.projects:
            raise ToolError(f"there is no project {value}")
        elif field == "priority" and not 1 <= value <= 4:
            raise ToolError("priority must be from 1 to 4")
        else:
            task[field] = value
        return "changed"

    @tool
    def complete_task(self, task_id: int) -> str:
        """Mark a task as done.

        Args:
            task_id: the task's id.
        """
        self._task(task_id)["done"] = True
        return "done"

    @tool
    def delete_task(self, task_id: int) -> str:
        """Delete a task for good.

        Args:
            task_id: the task's id.
        """
        self._task(task_id)
        del self.tasks[task_id]
        return "deleted"

    def assignments(self, draw: random.Random) -> Iterator[Assignment]:
        """Endless tasks in this world, all kinds in turn."""
        while True:
            yield self._add(draw)
            yield self._count(draw)
            yield self._change_one(draw)
            yield self._complete_overdue(draw)
            yield self._tidy(draw)

    def _add(self, draw: random.Random) -> Assignment:
        project = draw.choice(list(self.projects))
        offset, when = draw.choice([(0, "today"), (1, "tomorrow"), (7, "in a week")])
        content, label, priority = draw.choice(self._spare), draw.choice(_LABELS), draw.randint(1, 4)
        due = (self.today + timedelta(days=offset)).isoformat()
        arguments = {"project_id": project, "content": content, "due": due, "priority": priority, "label": label}
        return self._order(
            f'Add the task "{content}" to the project {self.projects[project]}, due {when}, with priority {priority} '
            f"and the label {label}.",
            "add",
            (PlannedCall("today_is", {}), PlannedCall("list_projects", {}), PlannedCall("add_task", arguments)),
        )

    def _count(self, draw: random.Random) -> Assignment:
        priority = draw.randint(2, 4)
        names = draw.sample(list(self.projects), draw.randint(1, 3))
        count = sum(t["project"] in names and not t["done"] and t["priority"] >= priority for t in self.tasks.values())
        where = " and ".join(self.projects[key] for key in names)
        plural = "s" if len(names) > 1 else ""
        return Assignment(
            prompt=(
                f"How many tasks of priority {priority} or higher are still open in the project{plural} {where}? "
                f"Answer with a number."
            ),
            kind="count",
            calls=(
                PlannedCall("list_projects", {}),
                *(PlannedCall("list_tasks", {"project_id": key}) for key in names),
            ),
            answer=float(count),
        )

    def _change_one(self, draw: random.Random) -> Assignment:
        key = draw.choice(list(self.tasks))
        task = self.tasks[key]
        others = [project for project in self.projects if project != task["project"]]
        target = draw.choice(others)
        day = (self.today + timedelta(days=draw.randint(15, 30))).isoformat()
        field, value, words = draw.choice(
            [
                ("due", day, f"Put off the task {{}} to {day}."),
                ("priority", task["priority"] % 4 + 1, f"Give the task {{}} the priority {task['priority'] % 4 + 1}."),
                ("project", target, f"Move the task {{}} to the project {self.projects[target]}."),
            ]
        )
        name = f'"{task["content"]}" of the project {self.projects[task["project"]]}'
        return self._order(
            words.format(name),
            "change one",
            (
                PlannedCall("list_projects", {}),
                PlannedCall("list_tasks", {"project_id": task["project"]}),
                PlannedCall("update_task", {"task_id": key, "field": field, "value": value}),
            ),
        )

    def _complete_overdue(self, draw: random.Random) -> Assignment:
        overdue: dict[int, dict[str, Any]] = {}
        while not overdue:
            project = draw.choice(list(self.projects))
            overdue = {key: task for key, task in self._open(project).items() if task["due"] < self.today.isoformat()}
            if not overdue and not any(
                t["due"] < self.today.isoformat() and not t["done"] for t in self.tasks.values()
            ):
                return self._add(draw)
        return self._order(
            f"Mark as done all open tasks of the project {self.projects[project]} that were due before today.",
            "complete several",
            (
                PlannedCall("today_is", {}),
                PlannedCall("list_projects", {}),
                PlannedCall("list_tasks", {"project_id": project}),
                *(PlannedCall("complete_task", {"task_id": key}) for key in overdue),
            ),
        )

    def _tidy(self, draw: random.Random) -> Assignment:
        while True:
            project, target = draw.sample(list(self.projects), 2)
            label = draw.choice(_LABELS)
            done = [key for key, task in self.tasks.items() if task["project"] == project and task["done"]]
            moved = [key for key, task in self._open(project).items() if task["label"] == label]
            if done and moved:
                break
        return self._order(
            f"In the project {self.projects[project]}, delete every task that is done, and move every open task with "
            f"the label {label} to the project {self.projects[target]}.",
            "tidy up",
            (
                PlannedCall("list_projects", {}),
                PlannedCall("list_tasks", {"project_id": project}),
                *(PlannedCall("delete_task", {"task_id": key}) for key in done),
                *(PlannedCall("update_task", {"task_id": key, "field": "project", "value": target}) for key in moved),
            ),
        )

    def _order(self, prompt: str, kind: str, calls: tuple[PlannedCall, ...]) -> Assignment:
        after = copy.deepcopy(self)
        for call in calls:
            getattr(after, call.tool)(**call.arguments)
        return Assignment(prompt, kind, calls, goal=after.snapshot())

    def _open(self, project: int) -> dict[int, dict[str, Any]]:
        return {key: task for key, task in self.tasks.items() if task["project"] == project and not task["done"]}

    def _task(self, task_id: int) -> dict[str, Any]:
        if task_id not in self.tasks:
            raise ToolError(f"there is no task {task_id}")
        return self.tasks[task_id]


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise ToolError(f"{text!r:.40} is no date; write YYYY-MM-DD") from error


def _label(text: str) -> str:
    if text not in _LABELS:
        raise ToolError(f"there is no label {text!r:.40}; there are {', '.join(_LABELS)}")
    return text
