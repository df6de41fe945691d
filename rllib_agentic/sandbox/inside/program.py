"""The process that runs foreign code: how it is limited, and how it behaves like a Python script of its own."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import errno
import gc
import linecache
import os
import random
import resource
import signal
import socket
import sys
import threading
import traceback
import types
from collections.abc import Mapping
from typing import IO, Any

from rllib_agentic.sandbox.inside import frames

NAME = "main.py"
# Names of our own modules, for programs to forget. The warm parent fills it: going through all modules in each program
# would copy the memory in which their names lie.
OURS: list[str] = []
_FULL = (errno.EFBIG, errno.ENOSPC, errno.EDQUOT)


def set_limits(limits: Mapping[str, int], count_processes: bool) -> None:
    """Limits that the kernel holds this process and its children to.

    Args:
        limits: ``memory_bytes`` (of address space), ``file_bytes``, ``open_files`` and ``processes``.
        count_processes: whether the processes of this user are the cell's alone, so that the kernel can count them.
    """
    wanted = {
        "RLIMIT_AS": limits["memory_bytes"],
        "RLIMIT_FSIZE": limits["file_bytes"],
        "RLIMIT_NOFILE": limits["open_files"],
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
    if count_processes:
        wanted["RLIMIT_NPROC"] = limits["processes"] + 1  # the cell itself
    for name, value in wanted.items():
        if hasattr(resource, name):  # not all of them exist outside of Linux
            _set(getattr(resource, name), value)


def _set(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(kind, (value, value))
    except (ValueError, OSError):
        if sys.platform == "linux":
            raise


def live(channel: socket.socket, folder: str) -> None:
    """Run what comes over the channel, until it closes or until a run that was to be the only one has ended.

    Each request says ``persist`` and ``seed``, has the code as its body, and brings a descriptor for standard input.
    """
    _prepare(folder)
    module: types.ModuleType | None = None
    while True:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        received = _receive(channel)
        if received is None:
            os._exit(0)
        request, body = received
        channel.sendall(frames.pack({"accepted": True}))
        if module is None:
            module = types.ModuleType("__main__")
            module.__dict__["__builtins__"] = builtins
            sys.modules["__main__"] = module
            _seed(request["seed"])
        code = body.decode("utf-8", "surrogatepass")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if not request["persist"]:
            _run_to_the_end(code, module, channel)
        exit_code, error = _run(code, module)
        with contextlib.suppress(KeyboardInterrupt):
            _flush()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        channel.sendall(frames.pack({"exit": exit_code, "error": error}))


def _prepare(folder: str) -> None:
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)
    sys.path.insert(0, folder)
    sys.argv[:] = [NAME]
    for name in OURS:
        sys.modules.pop(name, None)
    _use("stdout", open(1, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    _use("stderr", open(2, "w", 1, "utf-8", "backslashreplace", closefd=False))  # noqa: SIM115
    gc.enable()


def _use(name: str, stream: IO[str]) -> None:
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _receive(channel: socket.socket) -> tuple[dict[str, Any], bytes] | None:
    try:
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    except OSError:
        return None
    if not descriptors:
        return None
    os.dup2(descriptors[0], 0)
    os.close(descriptors[0])
    _use("stdin", open(0, encoding="utf-8", errors="replace", closefd=False))  # noqa: SIM115
    return frames.receive(channel)


def _seed(seed: int) -> None:
    random.seed(seed)
    if numpy_random := sys.modules.get("numpy.random"):  # the warm parent loads it where it loads NumPy
        numpy_random.seed(seed % 2**32)


def _run(code: str, module: types.ModuleType) -> tuple[int, str | None]:
    """Run code and wait for its threads, as a script does. Gives exit code and kind of error."""
    linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)
    try:
        exec(compile(code, NAME, "exec", dont_inherit=True), module.__dict__)
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
    except SystemExit as ending:
        return _exit_code(ending.code)
    except BaseException as error:
        kind = _kind(error)
        _report(error)
        return (-signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1), kind
    return 0, None


def _run_to_the_end(code: str, module: types.ModuleType, channel: socket.socket) -> None:
    exit_code, error = _run(code, module)
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads of pools, as the interpreter does
        atexit._run_exitfuncs()
        _flush()
    except BaseException as late:
        exit_code = exit_code or 120
        error = error or _kind(late)
    with contextlib.suppress(OSError):  # the program closed it: then its exit code says all that there is
        channel.sendall(frames.pack({"exit": exit_code, "error": error}))
    if exit_code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(exit_code & 0xFF)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def _exit_code(code: object) -> tuple[int, str | None]:
    if code is None:
        return 0, None
    if isinstance(code, int):
        return code & 0xFF, "exit" if code & 0xFF else None
    print(code, file=sys.stderr)
    return 1, "exit"


def _kind(error: BaseException) -> str:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _FULL):
        return "resource_limit"
    if isinstance(error, BlockingIOError) and error.errno == errno.EAGAIN:  # fork
        return "resource_limit"
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return "resource_limit"
    return "exception"


def _report(error: BaseException) -> None:
    """Print the traceback as the interpreter does, without the frames of this module."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error = error.with_traceback(trace)
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        if sys.excepthook is not sys.__excepthook__:
            sys.excepthook(type(error), error, trace)
            return
    traceback.print_exception(error, file=sys.__stderr__)  # unlike the interpreter's own, it finds the source
