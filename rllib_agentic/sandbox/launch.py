"""Starting the warm parent, and asking it for cells."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.sandbox.exchange import ask
from rllib_agentic.sandbox.inside.warm_parent import MESSAGE_BYTES
from rllib_agentic.sandbox.settings import SandboxSettings

_START_S = 60.0
_MB = 1 << 20
# Only this package's folder is opened to the new interpreter, not the modules beside it, which load half the world.
_BEGIN = """
import sys, types
for name, folder in (("rllib_agentic", sys.argv[2]), ("rllib_agentic.sandbox", sys.argv[2] + "/sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from rllib_agentic.sandbox.inside.warm_parent import main
main()
"""


class IsolationError(InputError):
    """A way to isolate programs does not work on this machine."""


class WarmParent:
    """The warm parent's process.

    Args:
        settings: of the sandbox.
        isolation: the way, decided.

    Raises:
        IsolationError: this way does not work here; the message says what is missing.
        InputError: a package cannot be loaded.
        InfrastructureError: it does not start.
    """

    def __init__(self, settings: SandboxSettings, isolation: str) -> None:
        self._lock = threading.Lock()
        self._folder = "" if isolation == "namespaces" else tempfile.mkdtemp(prefix="rllib-sandbox-")
        self._control, theirs = socket.socketpair()
        try:
            self._process = _start(settings, isolation, self._folder, theirs)
        finally:
            theirs.close()
        self._control.setblocking(False)
        try:
            answer, _ = ask(self._control, b"", _START_S)
        except (OSError, TimeoutError) as error:
            self.close()
            raise InfrastructureError("sandbox_start", f"the sandbox's warm parent did not start: {error}") from error
        self._control.setblocking(True)
        if answer["failed"]:
            self.close()
            kind = IsolationError if answer["failed"] == "isolation" else InputError
            raise kind(f"sandbox: {isolation}: {answer['why']}")

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def cell(self) -> tuple[socket.socket, int]:
        """Have a cell forked.

        Returns:
            A connection that does not block, and the number for :meth:`kill`.

        Raises:
            IsolationError: it could not be shut in.
            InfrastructureError: the warm parent has gone.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs, self._lock:
                socket.send_fds(self._control, [b"c".ljust(MESSAGE_BYTES)], [theirs.fileno()])
            answer, _ = ask(ours, b"", _START_S)
        except (OSError, TimeoutError) as error:
            ours.close()
            raise InfrastructureError("sandbox_lost", f"the sandbox could not make a cell: {error}") from error
        if answer["failed"]:
            ours.close()
            raise IsolationError(f"sandbox: {answer['why']}")
        return ours, answer["number"]

    def kill(self, number: int) -> None:
        """End a cell that does not answer, and all in it."""
        with self._lock, contextlib.suppress(OSError):
            self._control.sendall(f"k{number}".encode().ljust(MESSAGE_BYTES))

    def close(self) -> None:
        """End the process and everything below it. Any number of times."""
        self._control.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _start(settings: SandboxSettings, isolation: str, folder: str, control: socket.socket) -> subprocess.Popen[bytes]:
    package_folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    package_folders = [path for path in map(os.path.realpath, package_folders) if os.path.isdir(path)]
    interpreter = os.path.realpath(sys.executable)
    config: dict[str, Any] = {
        "mark": secrets.token_hex(8),  # in the command line of all forks: tells them from those of other sandboxes
        "isolation": isolation,
        "control": control.fileno(),
        "folder": folder,
        "read_only": [*map(os.path.realpath, (sys.base_prefix, sys.base_exec_prefix)), *package_folders],
        "packages_in": package_folders,
        "preload": settings.packages,
        "warm_up": settings.warm_up,
        "disk_bytes": settings.disk_mb * _MB,
        "limits": {
            "cpu_s": settings.cpu_s,
            "memory_bytes": settings.memory_mb * _MB,
            "processes": settings.processes,
            "file_bytes": settings.file_mb * _MB,
            "disk_bytes": settings.disk_mb * _MB,
            "open_files": settings.open_files,
            "output_bytes": settings.output_bytes,
        },
    }
    here = str(Path(__file__).resolve().parents[1])
    return subprocess.Popen(
        [interpreter, "-s", "-S", "-P", "-B", "-X", "utf8", "-c", _BEGIN, json.dumps(config), here],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(control.fileno(),),
        env=_environment(),
        cwd="/",
        start_new_session=True,
    )


def _environment() -> dict[str, str]:
    """Everything that programs find in ``os.environ``; none of ours is handed on, for it may hold secrets."""
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",  # equal code, equal output
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",  # an arena for every thread would count as memory
    }
    if libraries := os.environ.get("LD_LIBRARY_PATH"):
        environment["LD_LIBRARY_PATH"] = libraries  # some interpreters do not start without
    return environment
