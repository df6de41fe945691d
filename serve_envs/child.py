"""An environment's costly part in a Python process of its own, called from here.

The child ends, and takes all processes that it started and all temporary files with it, when it is killed from here,
and as well when this process ends in whatever way: it notices that nobody holds the other end of its pipe.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import psutil

from rllib_agentic.errors import InfrastructureError, InputError

_DYING_S = 10.0  # for processes that were killed, to be gone
_MAIN = "import sys; from serve_envs.child import serve_parent; serve_parent(int(sys.argv[1]))"


class Child:
    """One Python process that holds objects and calls their methods, one call at a time.

    Temporary files of the child, and of what it starts, are in a folder of its own (``TMPDIR``), which goes with it.

    Args:
        target: ``"module:Class"`` of what it holds; imported there, not here.
        arguments: keyword arguments of the class.
        call_timeout_s: a call that takes longer means that the child hangs: it is killed.
    """

    def __init__(self, target: str, arguments: dict[str, Any], call_timeout_s: float = 120.0) -> None:
        self._target = target
        self._arguments = arguments
        self._call_timeout_s = call_timeout_s
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._folder: str | None = None
        self._dead = False

    @property
    def dead(self) -> bool:
        """Whether it was killed, hung or died."""
        return self._dead or (self._process is not None and self._process.poll() is not None)

    @property
    def process_id(self) -> int | None:
        """Of the child, while it runs."""
        return None if self._process is None or self.dead else self._process.pid

    def call(self, method: str, *args: Any) -> Any:
        """Call a method of the object that the child holds.

        Raises:
            InputError: the method raised it.
            InfrastructureError: ``session_lost``: the child died or hung.
            RuntimeError: the method raised something else; the message has its traceback.
        """
        with self._turn:
            try:
                self._started().send((method, args))
                assert self._pipe is not None
                if not self._pipe.poll(self._call_timeout_s):
                    raise TimeoutError(f"{method} takes more than {self._call_timeout_s:g} s")
                ok, value = self._pipe.recv()
            except (EOFError, OSError, TimeoutError, pickle.UnpicklingError) as error:
                self.kill()
                raise InfrastructureError(
                    "session_lost", f"the process of {self._target} is gone: {type(error).__name__} {error}"
                ) from error
        if ok:
            return value
        if isinstance(value, InputError | InfrastructureError):
            raise value
        raise RuntimeError(f"{self._target}.{method} failed in its process:\n{value}")

    def kill(self) -> None:
        """End the child and everything that it started, and reap it."""
        self._dead = True
        process, self._process = self._process, None
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()
        if process is not None:
            _kill(*_family(process.pid))
            process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _started(self) -> Connection:
        if self._dead:
            raise EOFError("it was stopped")
        if self._pipe is None:
            ours, theirs = _pipe_ends()
            self._folder = tempfile.mkdtemp(prefix="rllib-child-")
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, str(theirs)],
                pass_fds=(theirs,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": self._folder},
                start_new_session=True,
            )
            os.close(theirs)
            self._pipe = ours
            ours.send((self._target, self._arguments))
        return self._pipe


def _family(process_id: int) -> list[psutil.Process]:
    """A process and all that descend from it, those in sessions of their own (browsers) included."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(process_id)
        return [process, *process.children(recursive=True)]
    return []


def _kill(*processes: psutil.Process) -> None:
    """Kill processes, the youngest first, and wait until none of them runs: until then they may write files."""
    for one in reversed(processes):
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    deadline = time.monotonic() + _DYING_S
    while any(map(_runs, processes)) and time.monotonic() < deadline:
        time.sleep(0.002)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _pipe_ends() -> tuple[Connection, int]:
    ours, theirs = socket.socketpair()
    return Connection(ours.detach(), True, True), theirs.detach()


def serve_parent(descriptor: int) -> None:
    """The child's side: make the object, then answer calls until the parent is gone."""
    pipe = Connection(descriptor, True, True)
    requests: list[Any] = []
    arrived = threading.Semaphore(0)

    def listen() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                requests.append(pipe.recv())
                arrived.release()
        own, *started = _family(os.getpid())  # the parent is gone: nobody needs us, nor what we started
        _kill(*started)
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
        own.kill()

    threading.Thread(target=listen, daemon=True).start()
    arrived.acquire()
    target, arguments = requests.pop(0)
    held: Any = None
    while True:
        arrived.acquire()
        method, args = requests.pop(0)
        try:
            if held is None:
                module, _, name = target.partition(":")
                held = getattr(import_module(module), name)(**arguments)
            answer = (True, getattr(held, method)(*args))
        except (InputError, InfrastructureError) as error:
            answer = (False, error)
        except Exception:
            answer = (False, traceback.format_exc())
        with contextlib.suppress(OSError):
            pipe.send(answer)
