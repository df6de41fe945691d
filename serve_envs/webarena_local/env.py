"""Long web tasks: an issue tracker of its own for each episode, judged by its database."""

from __future__ import annotations

import hashlib
import re

from rllib_agentic.envs.env import EnvSchema, Observation, StepResult
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.message import Message
from serve_envs.action_text import extract_action
from serve_envs.splits import hash_of
from serve_envs.webarena_local.expert import next_action
from serve_envs.webarena_local.tasks import KINDS, SiteTask, Snapshot, is_done, make_splits
from serve_envs.webnav.browser_env import BrowserEnv

_STOP = re.compile(r'(?:stop|answer)\b\s*:?\s*(?:\[(.*)\]|"(.*)"|(.*))', re.IGNORECASE)
_SYSTEM = (
    "You work in an issue tracker, signed in as admin. Do what is asked, then say stop; where a question is asked, say "
    'answer "TEXT". Other actions, one a turn: click ID; type ID "TEXT"; select ID "OPTION"; scroll down; scroll up; '
    "press Enter; back. IDs are those in front of the lines."
)


class WebArenaLocal(BrowserEnv[SiteTask]):
    """Work in a tracker until ``stop`` or ``answer``.

    Args:
        kinds: which kinds of tasks: ``create``, ``edit``, ``comment``, ``find``, ``administer``.
        max_steps: steps after which the episode is truncated.
        browsers: browser processes a worker; each serves its sessions one call after the other.
        sessions_per_browser: the most sessions on one browser.

    Raises:
        InputError: an argument is out of range.
    """

    name = "webarena_local"
    target = "serve_envs.webarena_local.site:TrackerSite"

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
        self._before: Snapshot = {}
        super().__init__(browsers, sessions_per_browser)

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
        self._load(task, task.world)
        self._before = self._call("snapshot")
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
        line = " ".join(extract_action(action).split())
        if stop := _STOP.fullmatch(line):
            return self._judge(task, next((part for part in stop.groups() if part), None))
        complaint, metrics = self._use(action)
        truncated = self._steps >= self._max_steps
        if truncated:
            self._task = None
        return StepResult(
            Observation(
                messages=(Message("user", f"{complaint}{self._view.text()}"),),
                actions=self._actions(task),
                state_key=self._state_key(task),
            ),
            truncated=truncated,
            metrics=metrics,
        )

    def expert_action(self) -> str:
        """What a scripted worker would do now."""
        return next_action(self._running(), self._view)

    def _judge(self, task: SiteTask, answer: str | None) -> StepResult:
        after = self._call("snapshot")
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
