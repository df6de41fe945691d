"""Calls of the Linux kernel for which Python has no function."""

from __future__ import annotations

import ctypes
import os
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
MS_REMOUNT, MS_RDONLY = 0x20, 0x1
MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP = 1, 4, 22
_PR_CAPBSET_DROP, _PR_SET_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 24, 36, 38
_SYS_MOUNT_SETATTR = 442  # the same on both processor families
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def unshare(flags: int) -> None:
    """Leave the named namespaces for new ones."""
    _check(_libc.unshare(ctypes.c_int(flags)), f"unshare({flags:#x})")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount something."""
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _check(
        _libc.mount(*arguments, ctypes.c_ulong(flags), os.fsencode(data)), f"mount({source!r}, {target!r}, {kind!r})"
    )


def unmount(target: str) -> None:
    """Take a mount away, now from sight, and for good when nobody uses it."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount({target!r})")


def make_read_only(target: str) -> None:
    """Nothing under a mount, mounts below it included, can be changed, be a device, or raise anyone's rights."""
    attributes = struct.pack("=QQQQ", MS_RDONLY | MS_NOSUID | MS_NODEV, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR), ctypes.c_int(_AT_FDCWD), os.fsencode(target),
        ctypes.c_uint(_AT_RECURSIVE), attributes, ctypes.c_size_t(len(attributes)),
    )  # fmt: skip
    _check(result, f"mount_setattr({target!r})")


def pivot_root(new: str, old: str) -> None:
    """Make ``new`` the root; the old one appears at ``old``."""
    number = {"x86_64": 155, "aarch64": 41}[os.uname().machine]
    _check(_libc.syscall(ctypes.c_long(number), os.fsencode(new), os.fsencode(old)), f"pivot_root({new!r})")


def bound_capabilities() -> None:
    """Programs that are started later from here can have no privilege; those that we have stay."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break  # past the last one, or not allowed to: then there is nothing to give up


def drop_capabilities() -> None:
    """Give up every privilege."""
    header = struct.pack("=II", 0x20080522, 0)
    _check(_libc.capset(header, bytes(24)), "capset")


def no_new_privileges() -> None:
    """No program that is started from here can gain rights."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0), "prctl(NO_NEW_PRIVS)")


def die_with_parent() -> None:
    """Be killed when the parent thread ends. A change of user id takes this away: call it afterwards."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(9), 0, 0, 0), "prctl(PDEATHSIG)")


def own_proc_entry() -> None:
    """Be the owner of our entry in ``/proc`` again, which a change of user id takes away."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(1), 0, 0, 0), "prctl(DUMPABLE)")


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end."""
    _check(_libc.prctl(_PR_SET_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "prctl(CHILD_SUBREAPER)")


def set_filter(program: ctypes.Structure) -> None:
    """Install a seccomp filter (struct sock_fprog)."""
    _check(_libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.byref(program), 0, 0), "prctl(SECCOMP)")


def landlock_version() -> int:
    """The kernel's Landlock interface, from 1; 0 where there is none."""
    version = _libc.syscall(ctypes.c_long(_SYS_LANDLOCK_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(version, 0)


def landlock_ruleset(attributes: bytes) -> int:
    """A descriptor of a new rule set."""
    result = _libc.syscall(
        ctypes.c_long(_SYS_LANDLOCK_CREATE), attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0)
    )
    return _check(result, "landlock_create_ruleset")


def landlock_allow(ruleset: int, rule: bytes) -> None:
    """Add a rule about what lies beneath a path."""
    result = _libc.syscall(
        ctypes.c_long(_SYS_LANDLOCK_ADD), ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0)
    )
    _check(result, "landlock_add_rule")


def landlock_restrict(ruleset: int) -> None:
    """Hold this thread to the rule set, for good."""
    result = _libc.syscall(ctypes.c_long(_SYS_LANDLOCK_RESTRICT), ctypes.c_int(ruleset), ctypes.c_uint(0))
    _check(result, "landlock_restrict_self")
