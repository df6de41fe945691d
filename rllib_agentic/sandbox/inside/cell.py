"""A cell: takes requests, lets one program run at a time, watches it, and leaves nothing of it behind."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from rllib_agentic.sandbox.inside import family, frames, program
from rllib_agentic.sandbox.inside.isolation import Isolation
from rllib_agentic.sandbox.inside.output import Output
from rllib_agentic.sandbox.inside.running import Running

_FIRST_LOOK_S = 0.02
_LOOK_EVERY_S = 0.05
_GRACE_S = 0.5  # for a program that is asked to stop and would keep its variables


class Cell:
    """The process that watches.

    Args:
        connection: to whoever sends requests; when it closes, everything in here ends.
        isolation: of this cell and its programs.
        limits: of a program; see :func:`program.set_limits`. ``output_bytes`` for each stream.
        proc: descriptor of ``/proc``, None where there is none.
    """

    def __init__(
        self, connection: socket.socket, isolation: Isolation, limits: Mapping[str, int], proc: int | None
    ) -> None:
        self._connection = connection
        self._isolation = isolation
        self._limits = limits
        self._proc = proc
        self._program: Running | None = None
        self._woken, wake = os.pipe()
        for descriptor in (self._woken, wake):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> NoReturn:
        """Answer requests until the connection closes. The next program is ready before it is asked for."""
        while True:
            self._program = self._program or self._start()
            received = frames.receive(self._connection)
            if received is None:
                self._leave()
            request, body = received
            if request["op"] == "reset":
                self._end_program()
                reply, content = {"alive": False}, b""
            else:
                reply, content = self._run(request, body)
            try:
                self._connection.sendall(frames.pack(reply, content))
            except OSError:
                self._leave()

    def _leave(self) -> NoReturn:
        try:
            self._kill_all()
            self._isolation.clean_folder()
        finally:
            os._exit(0)

    def _run(self, request: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        code, stdin = body[: request["code"]], body[request["code"] :]
        self._reap(self._program)
        if self._program is not None and self._program.exit_code is not None:
            self._end_program()  # it was killed while it waited
        running = self._program = self._program or self._start()
        started = time.monotonic()
        running.begin(request, code, stdin)
        error, detail = self._watch(running, started, request["timeout_s"], request["persist"])
        if running.done is None or not request["persist"]:
            self._end_program()
        else:
            running.stop()  # so that it cannot start others while they are killed
            self._kill_all(but=running)
            running.take_output()
        done = running.done or {}
        exit_code = running.exit_code if running.exit_code is not None else done.get("exit")
        error = error or done.get("error") or _kind_of_exit(exit_code)
        outputs = [output.kept() for output in running.outputs]
        reply = {
            "exit": exit_code,
            "error": error,
            "detail": detail,
            "wall_s": time.monotonic() - started,
            "alive": self._program is not None,
            "accepted": running.accepted,
            "lengths": [len(part) for kept in outputs for part in kept],
            "totals": [output.total for output in running.outputs],
        }
        return reply, b"".join(part for kept in outputs for part in kept)

    def _start(self) -> Running:
        self._isolation.clean_folder()
        ours, theirs = socket.socketpair()
        pipes = [os.pipe(), os.pipe()]
        cell = os.getpid()
        child = os.fork()
        if child == 0:
            self._become_program(cell, theirs, [write for _, write in pipes])
        theirs.close()
        for read, write in pipes:
            os.close(write)
            os.set_blocking(read, False)
        return Running(child, ours, [Output(read, self._limits["output_bytes"]) for read, _ in pipes])

    def _become_program(self, cell: int, channel: socket.socket, outputs: list[int]) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            descriptors = [os.dup(number) for number in (*outputs, channel.fileno())]
            nothing = os.open(os.devnull, os.O_RDONLY)
            for target, source in enumerate((nothing, *descriptors)):
                os.dup2(source, target, inheritable=target < 3)
            channel.detach()
            os.closerange(4, 1 << 16)
            program.set_limits(self._limits, count_processes=os.getppid() == 1)
            self._isolation.shut_in_program()
            if os.getppid() != cell:
                os._exit(0)  # it ended meanwhile
        except BaseException as error:  # never run foreign code half shut in
            os.write(2, f"the program could not be shut in: {error}\n".encode())
            os._exit(97)
        program.live(socket.socket(fileno=3), self._isolation.folder)
        os._exit(0)

    def _watch(self, running: Running, started: float, seconds: float, persist: bool) -> tuple[str | None, str]:
        deadline = started + seconds
        poll = select.poll()
        for output in running.outputs:
            poll.register(output.descriptor, select.POLLIN)
        poll.register(running.channel, select.POLLIN)
        poll.register(self._connection, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        by_descriptor = {output.descriptor: output for output in running.outputs}
        verdict: tuple[str | None, str] = (None, "")
        interrupted = False
        look = time.monotonic() + _FIRST_LOOK_S
        while True:
            now = time.monotonic()
            if now >= deadline:
                limit = f"wall time limit of {seconds:g} s"
                if not persist or interrupted:
                    return "timeout", limit
                interrupted, verdict = True, ("timeout", limit)
                deadline = now + _GRACE_S
                os.kill(running.process, signal.SIGINT)
            if now >= look:
                look = now + _LOOK_EVERY_S
                if found := self._excess(running):
                    return found
            for descriptor, _ in poll.poll(max(0.0, min(deadline, look) - now) * 1000):
                if descriptor in by_descriptor:
                    if not by_descriptor[descriptor].read():
                        poll.unregister(descriptor)
                elif descriptor == self._connection.fileno():
                    self._leave()
                elif descriptor == self._woken:
                    _empty(self._woken)
                elif not running.hear():
                    poll.unregister(descriptor)
            self._reap(running)
            if running.exit_code is not None or (persist and running.done is not None):
                return verdict

    def _excess(self, running: Running) -> tuple[str, str] | None:
        """What the kernel's own limits do not cover: CPU a call, and the memory of a family."""
        if running.cpu_s() > self._limits["cpu_s"]:
            return "timeout", f"CPU time limit of {self._limits['cpu_s']:g} s"
        if self._isolation.folder_bytes() > self._limits["disk_bytes"]:
            return "resource_limit", "size of the folder"
        if self._proc is not None:
            kin = family.relatives(self._proc)
            if len(kin) > 1 and family.memory_bytes(self._proc, kin) > self._limits["memory_bytes"]:
                return "resource_limit", "memory limit of all processes together"
            if family.threads(self._proc, kin) > self._limits["processes"]:
                return "resource_limit", "limit on processes and threads"
        return None

    def _reap(self, running: Running | None) -> None:
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            if running is not None and process == running.process:
                running.exit_code = os.waitstatus_to_exitcode(status)

    def _end_program(self) -> None:
        running, self._program = self._program, None
        if running is None:
            return
        if running.exit_code is None:
            running.killed = True
        self._kill_all()
        if running.killed:
            running.exit_code = -signal.SIGKILL
        running.close()

    def _kill_all(self, but: Running | None = None) -> None:
        """Kill and reap until nothing is left: new processes may come while we look."""
        spared = [but.process] if but is not None else []
        if not spared and not _has_children():
            return
        until = time.monotonic() + 5
        while time.monotonic() < until:
            kin = [relative.own for relative in family.relatives(self._proc)] if self._proc is not None else []
            if self._proc is None and self._program is not None:
                kin = [self._program.process]
            others = [process for process in kin if process not in spared]
            if spared and not others:
                return
            self._isolation.kill_all(spared, others)
            self._reap(self._program)
            if not spared and not _has_children():
                return
            time.sleep(0.001)


def _kind_of_exit(exit_code: int | None) -> str | None:
    if exit_code in (0, None):
        return None
    if exit_code == -signal.SIGXCPU:
        return "timeout"
    return "killed" if exit_code is not None and exit_code < 0 else "exit"


def _empty(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
