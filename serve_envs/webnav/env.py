"""Web navigation: small pages in a real browser, seen as their accessibility tree, used with mouse and keys."""

from __future__ import annotations

import hashlib

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.splits import hash_of
from serve_envs.webnav.browser_env import BrowserEnv
from serve_envs.webnav.expert import next_action
from serve_envs.webnav.tasks import PageTask, listed, make_splits

_SYSTEM = (
    'You use a web page to do what is asked. Answer with one action: click ID; type ID "TEXT"; select ID "OPTION"; '
    "scroll down; scroll up; press Enter; back. IDs are those in front of the lines."
)


class WebNav(BrowserEnv[PageTask]):
    """Do what a page asks for.

    Args:
        pages: which of MiniWoB++'s pages; all that have tasks by default.
        max_steps: steps after which the episode is truncated.
        browsers: browser processes a worker; each serves its sessions one call after the other.
        sessions_per_browser: the most sessions on one browser.

    Raises:
        InputError: an argument is out of range.
    """

    name = "webnav"
    target = "serve_envs.webnav.miniwob_pages:MiniWobPages"

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
        super().__init__(browsers, sessions_per_browser)

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
        self._load(task, task.page, task.seed)
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
        complaint, metrics = self._use(action)
        done = self._view.done
        truncated = not done and self._steps >= self._max_steps
        text = "The page has ended the task." if done else self._view.text()
        result = StepResult(
            Observation(
                messages=(Message("user", f"{complaint}{text}"),),
                actions=() if done else self._view.actions(),
                state_key=self._state_key(task),
            ),
            reward=self._view.reward if done else 0.0,
            terminated=done,
            truncated=truncated,
            success=done and self._view.reward >= 1.0,
            metrics=metrics,
        )
        if done or truncated:
            self._task = None
        return result

    def expert_action(self) -> str:
        """What the page's solver would do now."""
        return next_action(self._running().page, self._view)

    def _state_key(self, task: PageTask) -> str:
        state = repr((task.page, self._view.goal, self._view.text(), self._view.done))
        return hashlib.sha256(state.encode()).hexdigest()[:16]
