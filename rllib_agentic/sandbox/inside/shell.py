"""A root file system of its own for the warm parent: read-only system folders, nothing of the user's, no network.

Works for root, and for everybody where the kernel lets users make namespaces. No program is needed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from rllib_agentic.sandbox.inside import linux

FOLDER = "/tmp"  # where programs work; each cell mounts its own over it
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
SYSTEM_SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_SEPARATE = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS


def enter_shell(read_only: Sequence[str], proc: int) -> None:
    """Put this process into a shell; the caller goes on in a child that is the first of its PID namespace.

    Root becomes a user that nobody else is, so that limits hold and nothing of root's can be touched.

    Args:
        read_only: folders that are seen at their own places, beside the system's.
        proc: descriptor of the folder ``/proc``.

    Raises:
        OSError: the kernel or a container around us forbids it, or the new user cannot read the interpreter.
    """
    user, group = os.geteuid(), os.getegid()  # in a new namespace, until it has a map, we are nobody
    if user == 0:
        linux.unshare(_SEPARATE)
    else:
        linux.unshare(_SEPARATE | linux.CLONE_NEWUSER)
        map_own_user(proc, user, group, shown_as=user)
    _build_root([*SYSTEM_FOLDERS, *read_only])
    child = os.fork()
    if child:
        os.closerange(0, 3)
        os.closerange(3, 1024)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    if user == 0:
        _become_nobody(2_000_000_000 + _own_number(proc))
    linux.bound_capabilities()
    linux.drop_capabilities()
    linux.no_new_privileges()
    linux.die_with_parent()
    for path in read_only:
        os.listdir(path)  # says so at once where the user that root became may not


def map_own_user(proc: int, user: int, group: int, shown_as: int) -> None:
    """In a new user namespace: our user and group are ``shown_as``, and there is nobody else.

    Raises:
        OSError: there is no such namespace, or a security module forbids it.
    """
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{shown_as} {user} 1"),
        ("gid_map", f"{shown_as} {group} 1"),
    ):
        file = os.open(f"self/{name}", os.O_WRONLY, dir_fd=proc)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


def _own_number(proc: int) -> int:
    return int(os.readlink("self", dir_fd=proc))


def _become_nobody(user: int) -> None:
    os.setgroups([])
    try:
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError:  # a container that knows fewer users
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    linux.own_proc_entry()


def _build_root(read_only: Sequence[str]) -> None:
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("tmpfs", FOLDER, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755,size=1m")
    os.chdir(FOLDER)
    os.mkdir("old", 0o700)
    os.mkdir("new", 0o755)
    linux.pivot_root(".", "old")
    linux.mount("tmpfs", "/new", "tmpfs", linux.MS_NOSUID, "mode=755,size=1m")
    for path in _outermost(read_only):
        _show(path)
    for path in SYSTEM_SETTINGS:
        _show(path)
    os.mkdir("/new/dev", 0o755)
    for name in _DEVICES:
        os.close(os.open(f"/new/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o644))
        linux.mount(f"/old/dev/{name}", f"/new/dev/{name}", None, linux.MS_BIND)
    os.symlink(FOLDER, "/new/dev/shm")
    os.symlink("/proc/self/fd", "/new/dev/fd")
    os.makedirs(f"/new{FOLDER}", 0o755, exist_ok=True)
    os.chdir("/new")
    linux.pivot_root(".", ".")  # the old root lies over the new one until it is taken away
    linux.unmount(".")
    os.chdir("/")
    linux.mount("none", "/", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID)


def _outermost(paths: Sequence[str]) -> list[str]:
    found: list[str] = []
    for path in sorted(set(map(os.path.normpath, paths))):
        if not any(path == other or path.startswith(other + "/") for other in found):
            found.append(path)
    return found


def _show(path: str) -> None:
    source, target = f"/old{path}", f"/new{path}"
    if os.path.islink(source):  # /lib -> usr/lib
        os.symlink(os.readlink(source), target)
        return
    if not os.path.exists(source):
        return
    os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
    if os.path.isdir(source):
        os.makedirs(target, 0o755, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    linux.mount(source, target, None, linux.MS_BIND | linux.MS_REC)
    linux.make_read_only(target)
