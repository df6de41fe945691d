"""Web navigation: small pages in a real browser, seen as their accessibility tree, used with mouse and keys."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any
from uuid import uuid4

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.child import Child
from serve_envs.splits import hash_of
from serve_envs.webnav.actions import read_action
from serve_envs.webnav.browsers import browser_pool, stop_browsers
from serve_envs.webnav.expert import next_action
from serve_envs.webnav.tasks import PageTask, listed, make_splits
from serve_envs.webnav.view import View

_TARGET = "serve_envs.webnav.miniwob_pages:MiniWobPages"
_SYSTEM = (
    'You use a web page to do what is asked. Answer with one action: click ID; type ID "TEXT"; select ID "OPTION"; '
    "scroll down; scroll up; press Enter; back. IDs are those in front of the lines."
)


class WebNav:
    """Do what a page asks for.

    Args:
        pages: which of MiniWoB++'s pages; all that have tasks by default.
        max_steps: steps after which the episode is truncated.
        browsers: browser processes a worker; each serves its sessions one call after the other.
        sessions_per_browser: the most sessions on one browser.

    Raises:
        InputError: an argument is out of range, or there is no browser.
    """

    def __init__(
        self,
        pages: tuple[str, ...] = tuple(listed()),
        max_steps: int = 20,
        browsers: int = 2,
        sessions_per_browser: int = 32,
    ) -> None:
        if not pages or len(set(pages)) < len(pages):
            raise InputError(f"webnav: pages must be one or more different names, got {pages!r}")
        if min(max_steps, browsers, sessions_per_browser) < 1:
            raise InputError("webnav: max_steps, browsers and sessions_per_browser start at 1")
        self._splits = make_splits(tuple(pages))
        self._max_steps = max_steps
        self._pool_key = (browsers, sessions_per_browser)
        self._browser: Child | None = None
        self._session = uuid4().hex
        self._task: PageTask | None = None
        self._view = View("", (), False, 0.0)
        self._steps = 0

    def schema(self) -> EnvSchema:
        """Splits and formats under these arguments."""
        return EnvSchema(
            name="webnav",
            version="1",
            splits={split: len(tasks) for split, tasks in self._splits.items()},
            splits_hash=hash_of(self._splits, list),
            action_format=(
                'click ID, type ID "TEXT", select ID "OPTION", scroll down, scroll up, press KEY or back; bare, or '
                "after 'Action:'. Example: type 3 \"Bo\""
            ),
            lists_actions=True,
            reward_range=(-1.0, 1.0),
            max_turns=min(self._max_steps, 15),
        )

    def reset(self, split: str, index: int, seed: int) -> Observation:
        """Load the page anew. The task's own seed decides what it shows, so ``seed`` changes nothing."""
        task = self._splits[split][index]
        if self._browser is None or self._browser.dead:
            self.close()
            self._browser = browser_pool(_TARGET, *self._pool_key).lease()
        self._view = View.of(self._browser.call("begin", self._session, task.page, task.seed))
        self._task = task
        self._steps = 0
        return Observation(
            messages=(Message("system", _SYSTEM), Message("user", f"Task: {self._view.goal}\n{self._view.text()}")),
            actions=self._view.actions(),
            state_key=self._state_key(task),
            info={"category": task.page},
        )

    def step(self, action: str) -> StepResult:
        """Do something on the page, or say that it cannot be done.

        Raises:
            RuntimeError: the episode has ended, or none was begun.
            InfrastructureError: ``session_lost``: the browser died.
        """
        task = self._running()
        assert self._browser is not None
        said = read_action(action)
        acted = False
        if said is not None:
            seen: dict[str, Any] = self._browser.call("act", self._session, *said)
            acted = seen["acted"]
            self._view = View.of(seen)
        self._steps += 1
        done = self._view.done
        truncated = not done and self._steps >= self._max_steps
        text = "The page has ended the task." if done else self._view.text()
        if said is None:
            text = f"That is no action.\n{text}"
        elif not acted:
            text = f"That could not be done.\n{text}"
        result = StepResult(
            Observation(
                messages=(Message("user", text),),
                actions=() if done else self._view.actions(),
                state_key=self._state_key(task),
            ),
            reward=self._view.reward if done else 0.0,
            terminated=done,
            truncated=truncated,
            success=done and self._view.reward >= 1.0,
            metrics={"invalid_action": float(said is None), "failed_action": float(said is not None and not acted)},
        )
        if done or truncated:
            self._task = None
        return result

    def close(self) -> None:
        """Close the session's pages; the browser stays warm."""
        self._task = None
        browser, self._browser = self._browser, None
        if browser is not None:
            if not browser.dead:
                with suppress(InfrastructureError, RuntimeError):
                    browser.call("end", self._session)
            browser_pool(_TARGET, *self._pool_key).give_back(browser)

    @classmethod
    def release(cls) -> None:
        """Stop the browsers."""
        stop_browsers(_TARGET)

    def expert_action(self) -> str:
        """What the page's solver would do now."""
        return next_action(self._running().page, self._view)

    def _running(self) -> PageTask:
        if self._task is None:
            raise RuntimeError("webnav: no episode is running; call reset")
        return self._task

    def _state_key(self, task: PageTask) -> str:
        state = repr((task.page, self._view.goal, self._view.text(), self._view.done))
        return hashlib.sha256(state.encode()).hexdigest()[:16]
