"""Landlock: what a program may do with files, told to the kernel by the program itself."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

from rllib_agentic.sandbox.inside import linux
from rllib_agentic.sandbox.inside.shell import SYSTEM_FOLDERS, SYSTEM_SETTINGS

LEAST_VERSION = 3  # Linux 6.2: from here on it knows truncate, without which files outside could be emptied
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_ALL_ACCESS = (1 << 15) - 1  # version 3 in full
_IOCTL_DEVICE = 1 << 15  # from version 5
_NETWORK = 0b11  # bind and connect over TCP, from version 4
_SCOPED = 0b11  # abstract sockets and signals stay inside, from version 6
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def check() -> int:
    """The version of the interface.

    Raises:
        OSError: the kernel has none, or too old a one.
    """
    version = linux.landlock_version()
    if version < LEAST_VERSION:
        raise OSError(f"Landlock version {LEAST_VERSION} is needed (Linux 6.2), this kernel has {version or 'none'}")
    return version


def restrict(read_only: Sequence[str], folder: str) -> None:
    """From now on: read the system's and the named folders, do anything inside ``folder``, and nothing else.

    Files that are open already stay usable.

    Raises:
        OSError: see :func:`check`.
    """
    version = check()
    files = _ALL_ACCESS | (_IOCTL_DEVICE if version >= 5 else 0)
    attributes = struct.pack("=Q", files)
    if version >= 4:
        attributes += struct.pack("=Q", _NETWORK)
    if version >= 6:
        attributes += struct.pack("=Q", _SCOPED)
    ruleset = linux.landlock_ruleset(attributes)
    for path in (*SYSTEM_FOLDERS, *SYSTEM_SETTINGS, *read_only):
        _allow(ruleset, path, _EXECUTE | _READ_FILE | _READ_FOLDER)
    for path in _DEVICES:
        _allow(ruleset, path, _READ_FILE | _WRITE_FILE)
    _allow(ruleset, folder, _ALL_ACCESS)
    linux.landlock_restrict(ruleset)
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):
            access &= _OF_A_FILE
        linux.landlock_allow(ruleset, struct.pack("=Qi", access, place))
    finally:
        os.close(place)
