"""A program as its cell sees it: what goes to it, what it says, what it costs."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
from typing import Any

from rllib_agentic.sandbox.inside import frames
from rllib_agentic.sandbox.inside.output import Output


class Running:
    """A program's process.

    Args:
        process: its id.
        channel: over which it gets requests and reports their end.
        outputs: its standard output and error.

    Attributes:
        exit_code: set when it was reaped.
        killed: whether it was by us.
        accepted: whether it has taken the request: before, no foreign code has run.
        done: what it says about the end of a call.
    """

    def __init__(self, process: int, channel: socket.socket, outputs: list[Output]) -> None:
        self.process = process
        self.channel = channel
        self.outputs = outputs
        self.exit_code: int | None = None
        self.killed = False
        self.accepted = False
        self.done: dict[str, Any] | None = None
        self._stopped = False
        self._cpu_before = 0.0

    def begin(self, request: dict[str, Any], code: bytes, stdin: bytes) -> None:
        """Send a run to the program, which may have been stopped since the last."""
        self.done, self.accepted = None, False
        for output in self.outputs:
            output.begin()
        if self._stopped:
            os.kill(self.process, signal.SIGCONT)
            self._stopped = False
        self._cpu_before = self.cpu_s(since=0.0)
        file = _file_with(stdin)
        header = {"persist": request["persist"], "seed": request["seed"]}
        try:
            socket.send_fds(self.channel, [b"r"], [file])
            self.channel.sendall(frames.pack(header, code))
        except OSError:
            pass  # it ended before it began: its exit tells
        finally:
            os.close(file)

    def hear(self) -> bool:
        """What the program says about its end; foreign code may say it too, and may say anything."""
        try:
            self.channel.settimeout(1.0)
            received = frames.receive(self.channel, most=1000)
            if received is None:
                return False
            said = received[0]
            if not self.accepted:  # its first word comes before any foreign code runs
                self.accepted = True
                return True
            self.done = {"exit": int(said["exit"]), "error": said["error"] if said["error"] in _KINDS else "exception"}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False
        finally:
            self.channel.settimeout(None)
        return True

    def cpu_s(self, since: float | None = None) -> float:
        """CPU seconds of the program in this run."""
        try:
            spent = time.clock_gettime((~self.process << 3) | 2)  # Linux: the CPU clock of a process
        except (OSError, OverflowError):
            return 0.0
        return spent - (self._cpu_before if since is None else since)

    def stop(self) -> None:
        """Let none of its threads run on between calls."""
        os.kill(self.process, signal.SIGSTOP)
        self._stopped = True

    def take_output(self) -> None:
        """Take what it left in its pipes."""
        for output in self.outputs:
            output.drain()

    def close(self) -> None:
        """Take what it left, and close all that leads to it."""
        self.take_output()
        for output in self.outputs:
            output.close()
        self.channel.close()


_KINDS = (None, "exception", "exit", "resource_limit")


def _file_with(content: bytes) -> int:
    if sys.platform == "linux":
        file = os.memfd_create("stdin")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file
