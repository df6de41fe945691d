"""The warm parent: shuts itself in, loads packages once, and forks cells on demand."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import site
import socket
import sys
from typing import Any, NoReturn

from rllib_agentic.sandbox.inside import frames, program
from rllib_agentic.sandbox.inside.cell import Cell
from rllib_agentic.sandbox.inside.isolation import Isolation, Landlock, Namespaces, Nothing

MESSAGE_BYTES = 16  # an order: what to do, and a number


def main() -> NoReturn:
    """Serve orders over the descriptor that the configuration names, until it closes."""
    config: dict[str, Any] = json.loads(sys.argv[1])
    control = socket.socket(fileno=config["control"])
    control.set_inheritable(False)
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY) if os.path.isdir("/proc/self") else None
    try:
        isolation = _isolation(config, proc)
        isolation.shut_in_parent()
    except OSError as error:
        _say(control, {"failed": "isolation", "why": str(error)})
        os._exit(0)
    sys.path.extend(config["packages_in"])
    try:
        _load(config["preload"])
        exec(config["warm_up"], {"__name__": "warm_up"})
    except Exception as error:
        _say(control, {"failed": "preload", "why": f"{type(error).__name__}: {error}"})
        os._exit(0)
    site.setquit()  # exit() and quit(), which the interpreter was started without
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the kernel
    gc.collect()
    gc.disable()
    gc.freeze()  # so that collections in forks do not copy what all of them share
    program.OURS[:] = [name for name in sys.modules if name.partition(".")[0] == "rllib_agentic"]
    limits = dict(config["limits"])
    limits["memory_bytes"] += _address_space(proc)
    _say(control, {"failed": None})
    _serve(control, isolation, limits, proc)


def _serve(control: socket.socket, isolation: Isolation, limits: dict[str, int], proc: int | None) -> NoReturn:
    while True:
        order, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 1)
        if not order:
            os._exit(0)
        if order[:1] == b"k":
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(order[1:]), signal.SIGKILL)
            continue
        if os.fork() == 0:
            control.close()
            _become_cell(socket.socket(fileno=descriptors[0]), isolation, limits, proc)
        os.close(descriptors[0])


def _become_cell(connection: socket.socket, isolation: Isolation, limits: dict[str, int], proc: int | None) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        number = isolation.shut_in_cell()
    except OSError as error:
        _say(connection, {"failed": "isolation", "why": str(error)})
        os._exit(0)
    _say(connection, {"failed": None, "number": number})
    Cell(connection, isolation, limits, proc).serve()


def _isolation(config: dict[str, Any], proc: int | None) -> Isolation:
    if config["isolation"] == "none":
        return Nothing(config["folder"])
    if proc is None:
        raise OSError("there is no /proc: Linux is needed")
    if config["isolation"] == "namespaces":
        return Namespaces(config["read_only"], config["disk_bytes"], proc)
    return Landlock(config["read_only"], config["folder"])


def _load(names: list[str]) -> None:
    for name in names:
        importlib.import_module(name)
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random")  # NumPy loads it late, and every program would


def _say(connection: socket.socket, header: dict[str, Any]) -> None:
    connection.sendall(frames.pack(header))


def _address_space(proc: int | None) -> int:
    if proc is None:
        return 0
    file = os.open("self/statm", os.O_RDONLY, dir_fd=proc)
    try:
        return int(os.read(file, 200).split()[0]) * os.sysconf("SC_PAGE_SIZE")
    finally:
        os.close(file)
