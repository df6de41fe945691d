"""One sandbox a process for all who ask for the same settings: a warm parent takes memory and a second to start."""

from __future__ import annotations

import atexit
import os
import threading

from rllib_agentic.sandbox.settings import SandboxSettings
from rllib_agentic.sandbox.warm import WarmSandbox

_lock = threading.Lock()
_open: dict[tuple[int, SandboxSettings], WarmSandbox] = {}


def shared_sandbox(settings: SandboxSettings) -> WarmSandbox:
    """The process' sandbox of these settings, started where there is none. Nobody but :func:`close_shared` closes it.

    Raises:
        InputError: see :class:`WarmSandbox`.
        InfrastructureError: see :class:`WarmSandbox`.
    """
    key = (os.getpid(), settings)  # a fork of this process must not speak over its parent's connections
    with _lock:
        if key not in _open:
            _open[key] = WarmSandbox(settings)
        return _open[key]


def close_shared() -> None:
    """Close the sandboxes of this process that are shared; whoever asks again gets new ones."""
    with _lock:
        ours = [key for key in _open if key[0] == os.getpid()]
        sandboxes = [_open.pop(key) for key in ours]
    for sandbox in sandboxes:
        sandbox.close()


atexit.register(close_shared)
