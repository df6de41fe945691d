"""The browsers that are kept warm, by what their processes hold."""

from __future__ import annotations

from functools import partial
from shutil import which

from rllib_agentic.errors import InputError
from serve_envs.child import Child
from serve_envs.warm_pool import WarmPool

PROGRAM = "chromium-headless-shell"
_POOLS: dict[tuple[str, int, int], WarmPool[Child]] = {}


def browser_program() -> str:
    """The browser that is installed here.

    Raises:
        InputError: there is none.
    """
    program = which(PROGRAM)
    if program is None:
        raise InputError(f"{PROGRAM}, the browser, is not installed; run: apt-get install {PROGRAM}")
    return program


def browser_pool(target: str, browsers: int, sessions: int) -> WarmPool[Child]:
    """The pool of one kind of process; the same for the same arguments.

    Args:
        target: ``"module:Class"`` of what a process holds: a :class:`~serve_envs.webnav.browser.Browser`.
        browsers: processes that are started before any is shared.
        sessions: the most sessions on one process.

    Raises:
        InputError: no browser is installed.
    """
    key = (target, browsers, sessions)
    if key not in _POOLS:
        make = partial(Child, target, {"executable": browser_program()}, call_timeout_s=60.0)
        _POOLS.setdefault(key, WarmPool(make, spread=browsers, sessions=sessions))
    return _POOLS[key]


def stop_browsers(target: str) -> None:
    """Stop all processes of one kind."""
    for (kind, _, _), pool in list(_POOLS.items()):
        if kind == target:
            pool.close()
