"""Long web tasks: an issue tracker of its own for each episode, judged by its database."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from typing import Any
from uuid import uuid4

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.child import Child
from serve_envs.splits import hash_of
from serve_envs.webarena_local.expert import next_action
from serve_envs.webarena_local.tasks import KINDS, SiteTask, Snapshot, is_done, make_splits
from serve_envs.webnav.actions import read_action
from serve_envs.webnav.browsers import browser_pool, stop_browsers
from serve_envs.webnav.view import View

_TARGET = "serve_envs.webarena_local.site:TrackerSite"
_STOP = re.compile(r'(?:stop|answer)\b\s*:?\s*(?:\[(.*)\]|"(.*)"|(.*))', re.IGNORECASE)
_SYSTEM = (
    "You work in an issue tracker, signed in as admin. Do what is asked, then say stop; where a question is asked, say "
    'answer "TEXT". Other actions, one a turn: click ID; type ID "TEXT"; select ID "OPTION"; scroll down; scroll up; '
    "press Enter; back. IDs are those in front of the lines."
)


class WebArenaLocal:
    """Work in a tracker until ``stop`` or ``answer``.

    Args:
        kinds: which kinds of tasks: ``create``, ``edit``, ``comment``, ``find``, ``administer``.
        max_steps: steps after which the episode is truncated.
        browsers: browser processes a worker; each serves its sessions one call after the other.
        sessions_per_browser: the most sessions on one browser.

    Raises:
        InputError: an argument is out of range, or there is no browser.
    """

    def __init__(
        self,
        kinds: tuple[str, ...] = KINDS,
        max_steps: int = 30,
        browsers: int = 2,
        sessions_per_browser: int = 16,
    ) -> None:
        if not kinds or not set(kinds) <= set(KINDS):
            raise InputError(f"webarena_local: kinds must be of {', '.join(KINDS)}, got {kinds!r}")
        if min(max_steps, browsers, sessions_per_browser) < 1:
            raise InputError("webarena_local: max_steps, browsers and sessions_per_browser start at 1")
        self._splits = {
            split: tuple(task for task in tasks if task.kind in kinds) for split, tasks in make_splits().items()
        }
        self._max_steps = max_steps
        self._pool_key = (browsers, sessions_per_browser)
        self._browser: Child | None = None
        self._session = f"s{uuid4().hex}"
        self._task: SiteTask | None = None
        self._before: Snapshot = {}
        self._view = View("", (), False, 0.0)
        self._steps = 0

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        return EnvSchema(
            name="webarena_local",
            version="1",
            splits={split: len(tasks) for split, tasks in self._splits.items()},
            splits_hash=hash_of(self._splits, lambda task: [task.world, task.text, repr(task.change), task.answer]),
            action_format=(
                'click ID, type ID "TEXT", select ID "OPTION", scroll down, scroll up, press KEY, back, stop or answer '
                '"TEXT"; bare, or after \'Action:\'. Example: select 12 "urgent"'
            ),
            lists_actions=True,
            reward_range=(0.0, 1.0),
            max_turns=min(self._max_steps, 15),
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Start a new tracker. The task decides what is in it, so ``seed`` changes nothing."""
        task = self._splits[split][index]
        if self._browser is None or self._browser.dead:
            self.close()
            self._browser = browser_pool(_TARGET, *self._pool_key).lease()
        self._view = View.of(self._browser.call("begin", self._session, task.world))
        self._before = self._browser.call("snapshot", self._session)
        self._task = task
        self._steps = 0
        return Observation(
            messages=(Message("system", _SYSTEM), Message("user", f"Task: {task.text}\n{self._view.text()}")),
            actions=self._actions(task),
            state_key=self._state_key(task),
            info={"category": task.kind},
        )

    def step(self, action: str) -> StepResult:
        """Do something on the page, or end the task.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
            InfrastructureError: ``session_lost``: the browser died.
        """
        task = self._running()
        assert self._browser is not None
        line = " ".join(extract_action(action).split())
        self._steps += 1
        if stop := _STOP.fullmatch(line):
            return self._judge(task, next((part for part in stop.groups() if part), None))
        said = read_action(action)
        acted = False
        if said is not None:
            seen: dict[str, Any] = self._browser.call("act", self._session, *said)
            acted, self._view = seen["acted"], View.of(seen)
        text = self._view.text()
        if said is None:
            text = f"That is no action.\n{text}"
        elif not acted:
            text = f"That could not be done.\n{text}"
        truncated = self._steps >= self._max_steps
        if truncated:
            self._task = None
        return StepResult(
            Observation(
                messages=(Message("user", text),), actions=self._actions(task), state_key=self._state_key(task)
            ),
            truncated=truncated,
            metrics={"invalid_action": float(said is None), "failed_action": float(said is not None and not acted)},
        )

    def close(self) -> None:
        """Throw the tracker away; the browser stays warm."""
        self._task = None
        browser, self._browser = self._browser, None
        if browser is not None:
            if not browser.dead:
                with suppress(InfrastructureError, RuntimeError):
                    browser.call("end", self._session)
            browser_pool(_TARGET, *self._pool_key).give_back(browser)

    @classmethod
    def release(cls) -> None:
        """Stop the browsers, and with them all trackers."""
        stop_browsers(_TARGET)

    def expert_action(self) -> str:
        """What a scripted worker would do now."""
        return next_action(self._running(), self._view)

    def _running(self) -> SiteTask:
        if self._task is None:
            raise RuntimeError("webarena_local: no episode is running; call reset")
        return self._task

    def _judge(self, task: SiteTask, answer: str | None) -> StepResult:
        assert self._browser is not None
        after = self._browser.call("snapshot", self._session)
        success = is_done(task, self._before, after, answer)
        self._task = None
        return StepResult(
            Observation(
                messages=(Message("user", "The task is done." if success else "The task is not done."),),
                actions=(),
                state_key=self._state_key(task, ended=True),
            ),
            reward=float(success),
            terminated=True,
            success=success,
            metrics={"invalid_action": 0.0, "failed_action": 0.0},
        )

    def _actions(self, task: SiteTask) -> tuple[str, ...]:
        return (*self._view.actions(quoting=task.text), "stop")

    def _state_key(self, task: SiteTask, *, ended: bool = False) -> str:
        state = repr((task.world, task.text, self._view.text(), ended))
        return hashlib.sha256(state.encode()).hexdigest()[:16]
