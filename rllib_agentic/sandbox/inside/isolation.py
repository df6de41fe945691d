"""The ways to shut programs in. A way is three steps, one for each kind of process."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from typing import Protocol

from rllib_agentic.sandbox.inside import landlock, linux, seccomp, shell

PROGRAM_USER = 1000  # as programs see themselves inside of namespaces


class Isolation(Protocol):
    """One way.

    Attributes:
        folder: where programs work, once a cell is made.
    """

    folder: str

    def shut_in_parent(self) -> None:
        """In the warm parent, before any package is loaded. The caller may go on in a child.

        Raises:
            OSError: a mechanism is missing here.
        """
        ...

    def shut_in_cell(self) -> int:
        """In a new fork of the warm parent; the caller may go on in a child.

        Returns:
            The id under which the warm parent can kill the cell and all that is in it.
        """
        ...

    def clean_folder(self) -> None:
        """In a cell that runs nothing: make the working folder empty, or as good as new."""
        ...

    def folder_bytes(self) -> int:
        """In a cell: what lies in the working folder, where nothing but this keeps it small; else 0."""
        ...

    def shut_in_program(self) -> None:
        """In a new program, as the last step before foreign code."""
        ...

    def kill_all(self, others_than: Sequence[int], family: Sequence[int]) -> None:
        """In a cell: kill every process below it but the named ones, ``family`` being those that were seen."""
        ...


class Namespaces:
    """User, PID, mount, network and IPC namespaces around each cell, and a filter of system calls.

    Args:
        read_only: folders to show, beside the system's.
        disk_bytes: size of the private folder, which lies in memory.
        proc: descriptor of ``/proc``.
    """

    def __init__(self, read_only: Sequence[str], disk_bytes: int, proc: int) -> None:
        self.folder = shell.FOLDER
        self._read_only = read_only
        self._options = f"size={disk_bytes},nr_inodes=8192,mode=700"
        self._proc = proc
        self._filter = seccomp.filter_for(only_process=None)
        self._untouched: tuple[int, ...] = ()

    def shut_in_parent(self) -> None:
        """See :class:`Isolation`."""
        shell.enter_shell(self._read_only, self._proc)

    def shut_in_cell(self) -> int:
        """See :class:`Isolation`."""
        user, group = os.geteuid(), os.getegid()
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWIPC)
        shell.map_own_user(self._proc, user, group, shown_as=PROGRAM_USER)
        ready, tell = os.pipe()
        child = os.fork()
        if child:
            os.write(tell, str(child).encode())
            os._exit(0)
        os.close(tell)
        number = int(os.read(ready, 20))
        os.close(ready)
        linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
        self._mount_folder()
        linux.bound_capabilities()
        linux.no_new_privileges()
        return number

    def clean_folder(self) -> None:
        """A new one: nothing of the old, its permissions included, is left."""
        if os.listdir(self.folder) or _marks(self.folder) != self._untouched:
            linux.unmount(self.folder)
            self._mount_folder()

    def folder_bytes(self) -> int:
        """The kernel holds it to its size."""
        return 0

    def _mount_folder(self) -> None:
        linux.mount("tmpfs", self.folder, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, self._options)
        self._untouched = _marks(self.folder)

    def shut_in_program(self) -> None:
        """See :class:`Isolation`."""
        linux.drop_capabilities()
        seccomp.install(self._filter)

    def kill_all(self, others_than: Sequence[int], family: Sequence[int]) -> None:
        """See :class:`Isolation`. Without exceptions the kernel does it in one go, so that nothing can slip through."""
        if others_than:
            _kill_each(family, others_than)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)


class Landlock:
    """For places that forbid namespaces: Landlock holds the files, a filter of system calls all the rest.

    Programs have one process (threads are theirs) and cannot start others.

    Args:
        read_only: folders that may be read, beside the system's.
        base: folder in which each cell gets its own.
    """

    def __init__(self, read_only: Sequence[str], base: str) -> None:
        self.folder = ""
        self._read_only = read_only
        self._base = base

    def shut_in_parent(self) -> None:
        """See :class:`Isolation`."""
        landlock.check()
        seccomp.filter_for(only_process=1)
        linux.bound_capabilities()
        linux.drop_capabilities()
        linux.no_new_privileges()

    def shut_in_cell(self) -> int:
        """See :class:`Isolation`."""
        linux.adopt_orphans()
        self.folder = tempfile.mkdtemp(dir=self._base)
        return os.getpid()

    def clean_folder(self) -> None:
        """See :class:`Isolation`."""
        _empty(self.folder)

    def folder_bytes(self) -> int:
        """See :class:`Isolation`."""
        return _bytes_in(self.folder)

    def shut_in_program(self) -> None:
        """See :class:`Isolation`."""
        linux.die_with_parent()  # no namespace ends with the cell
        landlock.restrict(self._read_only, self.folder)
        seccomp.install(seccomp.filter_for(only_process=os.getpid()))

    def kill_all(self, others_than: Sequence[int], family: Sequence[int]) -> None:
        """See :class:`Isolation`."""
        _kill_each(family, others_than)


class Nothing:
    """No isolation at all: limits and a folder, against accidents and not against intent.

    Args:
        base: folder in which each cell gets its own.
    """

    def __init__(self, base: str) -> None:
        self.folder = ""
        self._base = base

    def shut_in_parent(self) -> None:
        """See :class:`Isolation`."""

    def shut_in_cell(self) -> int:
        """See :class:`Isolation`."""
        if os.uname().sysname == "Linux":
            linux.adopt_orphans()
        self.folder = tempfile.mkdtemp(dir=self._base)
        return os.getpid()

    def clean_folder(self) -> None:
        """See :class:`Isolation`."""
        _empty(self.folder)

    def folder_bytes(self) -> int:
        """See :class:`Isolation`."""
        return _bytes_in(self.folder)

    def shut_in_program(self) -> None:
        """See :class:`Isolation`."""
        if os.uname().sysname == "Linux":
            linux.die_with_parent()

    def kill_all(self, others_than: Sequence[int], family: Sequence[int]) -> None:
        """See :class:`Isolation`."""
        _kill_each(family, others_than)


def _kill_each(family: Sequence[int], others_than: Sequence[int]) -> None:
    for process in family:
        if process not in others_than:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _marks(folder: str) -> tuple[int, ...]:
    """What any change of a folder itself changes."""
    status = os.stat(folder)
    return status.st_ino, status.st_mode, status.st_nlink, status.st_ctime_ns


def _bytes_in(folder: str) -> int:
    count = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                count += os.lstat(os.path.join(place, name)).st_blocks * 512
    return count


def _empty(folder: str) -> None:
    for place, folders, _ in os.walk(folder):
        for name in folders:
            path = os.path.join(place, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)
