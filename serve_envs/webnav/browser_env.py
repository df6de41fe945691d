"""The base of environments in a browser: what the page shows, and what an action led to there."""

from __future__ import annotations

from collections.abc import Mapping
from shutil import which
from typing import Any

from rllib_agentic.errors import InputError
from serve_envs.child_env import ChildEnv, TaskT
from serve_envs.webnav.actions import read_action
from serve_envs.webnav.view import View

PROGRAM = "chromium-headless-shell"


def browser_program() -> str:
    """The browser that is installed here.

    Raises:
        InputError: there is none.
    """
    program = which(PROGRAM)
    if program is None:
        raise InputError(f"{PROGRAM}, the browser, is not installed; run: apt-get install {PROGRAM}")
    return program


class BrowserEnv(ChildEnv[TaskT]):
    """A session's page in one of a few browsers; a process holds a :class:`~serve_envs.webnav.browser.Browser`.

    Args:
        browsers: processes that are started before any is shared.
        sessions: the most sessions on one browser.
    """

    def __init__(self, browsers: int, sessions: int) -> None:
        super().__init__(browsers, sessions)
        self._view = View("", (), False, 0.0)

    @classmethod
    def child_arguments(cls) -> Mapping[str, Any]:
        """The browser's program.

        Raises:
            InputError: no browser is installed.
        """
        return {"executable": browser_program()}

    def _load(self, task: TaskT, *args: Any) -> None:
        """Begin an episode: load its first page.

        Args:
            task: what is running from now on.
            args: of ``begin`` in the process, after the session.
        """
        self._view = View.of(self._begin(task, *args))

    def _use(self, action: str) -> tuple[str, dict[str, float]]:
        """Do on the page what the agent said.

        Returns:
            What there is to complain of, a line or nothing; the step's metrics.

        Raises:
            InfrastructureError: ``session_lost``: the browser died.
        """
        said = read_action(action)
        acted = False
        if said is not None:
            seen: dict[str, Any] = self._call("act", *said)
            acted, self._view = seen["acted"], View.of(seen)
        self._steps += 1
        complaint = "That is no action.\n" if said is None else "" if acted else "That could not be done.\n"
        return complaint, {
            "invalid_action": float(said is None),
            "failed_action": float(said is not None and not acted),
        }
