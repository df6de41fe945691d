"""The descendants of this process: which there are, and the memory that they hold."""

from __future__ import annotations

import os
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Relative(NamedTuple):
    """One descendant.

    Attributes:
        seen: its id in the ``/proc`` that we look through.
        own: its id as this process knows it.
    """

    seen: str
    own: int


def relatives(proc: int) -> list[Relative]:
    """All descendants, parents first. What ends meanwhile is left out.

    Args:
        proc: descriptor of a folder ``/proc``, maybe of another PID namespace.
    """
    found: list[Relative] = []
    waiting = ["self"]
    while waiting:
        for child in _children(proc, waiting.pop(0)):
            own = _own_id(proc, child)
            if own is not None:
                found.append(Relative(child, own))
                waiting.append(child)
    return found


def memory_bytes(proc: int, family: list[Relative]) -> int:
    """Memory that is theirs alone or shared between them by forking: an upper bound of what they cost."""
    pages = 0
    for relative in family:
        fields = _read(proc, f"{relative.seen}/statm").split()
        if len(fields) > 2:
            pages += int(fields[1]) - int(fields[2])
    return pages * _PAGE


def threads(proc: int, family: list[Relative]) -> int:
    """How many threads they have in all; each process has one at least."""
    count = 0
    for relative in family:
        try:
            count += os.stat(f"{relative.seen}/task", dir_fd=proc).st_nlink - 2
        except OSError:
            continue
    return count


def _children(proc: int, process: str) -> list[str]:
    try:
        folder = os.open(f"{process}/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
    except OSError:
        return []
    try:
        threads = os.listdir(folder)
    except OSError:
        return []
    finally:
        os.close(folder)
    return [child for thread in threads for child in _read(proc, f"{process}/task/{thread}/children").split()]


def _own_id(proc: int, process: str) -> int | None:
    for line in _read(proc, f"{process}/status").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return None


def _read(proc: int, path: str) -> str:
    try:
        file = os.open(path, os.O_RDONLY, dir_fd=proc)
    except OSError:
        return ""
    try:
        return os.read(file, 65536).decode()
    except OSError:
        return ""
    finally:
        os.close(file)
