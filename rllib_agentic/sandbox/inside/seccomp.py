"""The system call filter of a program: a classic BPF program (Linux' seccomp_filter), assembled here.

It denies by name what no computation needs and what reaches out of the process: sockets, namespaces, mounts, other
processes' memory, priorities and limits, keys, kernel interfaces, shared memory that no limit counts. Calls that are
newer than our list do not exist for the program, and neither do those of another processor mode.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Iterable
from typing import NamedTuple

from rllib_agentic.sandbox.inside import linux
from rllib_agentic.sandbox.inside.syscalls import FIRST_UNKNOWN, Processor, number, this_processor

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_IF_EQUAL, _IF_AT_LEAST, _IF_ANY = 0x15, 0x35, 0x45
_OFFSET_NUMBER, _OFFSET_PROCESSOR, _OFFSET_ARGUMENTS = 0, 4, 16
_X32 = 0x40000000

_NEW_NAMESPACE = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_THREAD = 0x10000
_STREAM = 1
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15
_PR_SET_PDEATHSIG = 1
_FIOSETOWN, _SIOCSPGRP, _TIOCSTI, _TIOCLINUX = 0x8901, 0x8902, 0x5412, 0x541C

_NEVER = """
    accept accept4 acct add_key adjtimex bind bpf chroot clock_adjtime clock_settime connect delete_module
    fanotify_init finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter io_uring_register
    io_uring_setup ioperm iopl ioprio_set kcmp kexec_file_load kexec_load keyctl listen lookup_dcookie memfd_create
    memfd_secret migrate_pages modify_ldt mount mount_setattr move_mount move_pages mq_open msgget
    name_to_handle_at nfsservctl open_by_handle_at open_tree perf_event_open personality pidfd_getfd pivot_root
    process_madvise process_mrelease process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot
    request_key semget setdomainname sethostname setns settimeofday shmget socket swapoff swapon syslog umount2
    unshare userfaultfd vhangup
"""
# Where no namespace holds the program, these would reach other processes or the owner's files.
_NEVER_IN_THE_OPEN = """
    chmod chown execve execveat fchmod fchmodat fchmodat2 fchown fchownat fork fremovexattr fsetxattr futimesat
    inotify_add_watch lchown lremovexattr lsetxattr pidfd_open pidfd_send_signal removexattr rt_sigqueueinfo
    setxattr tkill utime utimensat utimes vfork
"""


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_char_p))


class Test(NamedTuple):
    """One question about an argument, of which the low 32 bits are looked at: the kernel takes no more of these.

    Attributes:
        argument: its number, from 0.
        mask: bits that count.
        equals: their value; None asks whether any is set.
        then: what to do.
    """

    argument: int
    mask: int
    equals: int | None
    then: int


class Rule(NamedTuple):
    """What happens to one call: the first test that holds decides, else ``otherwise``."""

    call: str
    tests: tuple[Test, ...]
    otherwise: int


def deny(code: int = errno.EPERM) -> int:
    """The call is not made and fails with this error."""
    return 0x00050000 | code


def rules(only_process: int | None) -> list[Rule]:
    """All that is not simply allowed.

    Args:
        only_process: the id of the program where no PID namespace hides the others: it may signal itself alone, and
            start threads but no process. None inside of namespaces.
    """
    full = 0xFFFFFFFF
    zero_only = (Test(0, full, 0, ALLOW),)
    found = [Rule(name, (), deny()) for name in _NEVER.split()]
    found += [
        Rule("clone3", (), deny(errno.ENOSYS)),  # its flags lie in memory; the C library falls back to clone
        Rule("socketpair", (Test(1, 0xF, _STREAM, ALLOW),), deny()),  # event loops need a pair of streams
        Rule("prlimit64", zero_only, deny()),
        Rule("sched_setaffinity", zero_only, deny()),
        Rule("sched_setattr", zero_only, deny()),
        Rule("sched_setparam", zero_only, deny()),
        Rule("sched_setscheduler", zero_only, deny()),
        Rule("setpriority", (Test(0, full, 1, deny()), Test(0, full, 2, deny()), Test(1, full, 0, ALLOW)), deny()),
        Rule("fcntl", tuple(Test(1, full, c, deny()) for c in (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX)), ALLOW),
        Rule(
            "ioctl", tuple(Test(1, full, c, deny()) for c in (_FIOSETOWN, _SIOCSPGRP, _TIOCSTI, _TIOCLINUX)), ALLOW
        ),
    ]  # fmt: skip
    if only_process is None:
        return [*found, Rule("clone", (Test(0, _NEW_NAMESPACE, None, deny()),), ALLOW)]
    itself = (Test(0, full, only_process, ALLOW),)
    found += [Rule(name, (), deny()) for name in _NEVER_IN_THE_OPEN.split()]
    found.append(Rule("prctl", (Test(0, full, _PR_SET_PDEATHSIG, deny()),), ALLOW))  # it is to end with its cell
    found += [Rule(name, itself, deny()) for name in ("kill", "tgkill", "rt_tgsigqueueinfo")]
    return [*found, Rule("clone", (Test(0, _NEW_NAMESPACE, None, deny()), Test(0, _THREAD, None, ALLOW)), deny())]


def assemble(all_rules: Iterable[Rule], processor: Processor) -> bytes:
    """The BPF program, eight bytes an instruction."""
    lines = [
        (_LOAD, 0, 0, _OFFSET_PROCESSOR),
        (_IF_EQUAL, 1, 0, processor.audit),
        (_RETURN, 0, 0, KILL_PROCESS),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
        (_IF_AT_LEAST, 0, 1, FIRST_UNKNOWN),  # the x32 calls of x86_64, from 0x40000000 on, are among these
        (_RETURN, 0, 0, deny(errno.ENOSYS)),
    ]
    for rule in all_rules:
        call = number(rule.call, processor)
        if call is not None:
            block = _block(rule)
            lines += [(_IF_EQUAL, 0, len(block), call), *block]
    lines.append((_RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _block(rule: Rule) -> list[tuple[int, int, int, int]]:
    lines = []
    for test in rule.tests:
        lines.append((_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * test.argument))  # both families are little-endian
        if test.equals is None:
            lines.append((_IF_ANY, 0, 1, test.mask))
        else:
            lines += [(_AND, 0, 0, test.mask), (_IF_EQUAL, 0, 1, test.equals)]
        lines.append((_RETURN, 0, 0, test.then))
    return [*lines, (_RETURN, 0, 0, rule.otherwise)]


def install(program: bytes) -> None:
    """Put the filter on this process, for good, and on all that it will start.

    Raises:
        OSError: the kernel has no seccomp filters, or forbids them here.
    """
    linux.set_filter(_Program(len(program) // 8, program))


def filter_for(only_process: int | None) -> bytes:
    """The program for this machine; see :func:`rules`."""
    return assemble(rules(only_process), this_processor())
