"""The system call filter, held to libseccomp's numbers and to an interpreter of BPF written here."""

from __future__ import annotations

import errno
import struct

import pytest

from rllib_agentic.sandbox.inside import seccomp
from rllib_agentic.sandbox.inside.syscalls import NUMBERS, PROCESSORS, Processor

ALLOW, KILL = "allow", "kill"


def decide(program: bytes, processor: Processor, call: int, *arguments: int, audit: int | None = None) -> str | int:
    """What the kernel would do: a machine of one accumulator over struct seccomp_data."""
    data = struct.pack("=IIQ6Q", call, audit or processor.audit, 0, *(arguments + (0,) * 6)[:6])
    lines = list(struct.iter_unpack("=HBBI", program))
    accumulator, at = 0, 0
    while True:
        code, yes, no, operand = lines[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif code == 0x54:
            accumulator &= operand
        elif code in (0x15, 0x35, 0x45):
            holds = {0x15: accumulator == operand, 0x35: accumulator >= operand, 0x45: accumulator & operand}[code]
            at += yes if holds else no
        elif code == 0x06:
            kind = operand & 0xFFFF0000
            return {0x7FFF0000: ALLOW, 0x80000000: KILL, 0x50000: operand & 0xFFFF}[kind]
        else:
            raise AssertionError(f"instruction {code:#x}")


@pytest.fixture(params=sorted(PROCESSORS))
def processor(request: pytest.FixtureRequest) -> Processor:
    return PROCESSORS[request.param]


def call(name: str, processor: Processor) -> int:
    number = NUMBERS[name][processor.column]
    assert number is not None
    return number


def test_numbers_are_libseccomps() -> None:
    libseccomp = pytest.importorskip("pyseccomp")
    for column, arch in enumerate((libseccomp.Arch.X86_64, libseccomp.Arch.AARCH64)):
        for name, numbers in NUMBERS.items():
            theirs = libseccomp.resolve_syscall(arch, name)
            assert numbers[column] == (theirs if theirs >= 0 else None), name


def test_in_namespaces_processes_are_free_and_the_way_out_is_closed(processor: Processor) -> None:
    program = seccomp.assemble(seccomp.rules(only_process=None), processor)

    def verdict(name: str, *arguments: int) -> str | int:
        return decide(program, processor, call(name, processor), *arguments)

    for name in ("socket", "connect", "mount", "unshare", "setns", "ptrace", "bpf", "keyctl", "io_uring_setup"):
        assert verdict(name) == errno.EPERM, name
    for name in ("kill", "execve", "fchmod", "pidfd_open"):
        assert verdict(name) == ALLOW, name
    assert verdict("clone", 0x11) == ALLOW  # fork
    assert verdict("clone", 0x3D0F00) == ALLOW  # a thread
    assert verdict("clone", 0x10000011) == errno.EPERM  # a user namespace
    assert verdict("clone3") == errno.ENOSYS
    assert verdict("socketpair", 1, 1 | 0o2000000) == ALLOW  # a stream, close on exec
    assert verdict("socketpair", 1, 2) == errno.EPERM
    assert verdict("prlimit64", 0, 7) == ALLOW
    assert verdict("prlimit64", 1, 7) == errno.EPERM
    assert verdict("setpriority", 0, 0) == ALLOW
    assert verdict("setpriority", 0, 1) == errno.EPERM
    assert verdict("setpriority", 2, 0) == errno.EPERM
    assert verdict("fcntl", 5, 2) == ALLOW
    assert verdict("fcntl", 5, 10) == errno.EPERM  # F_SETSIG
    assert verdict("ioctl", 0, 0x5412) == errno.EPERM  # TIOCSTI
    assert verdict("ioctl", 0, 0x5401) == ALLOW


def test_in_the_open_a_program_reaches_nobody_but_itself(processor: Processor) -> None:
    program = seccomp.assemble(seccomp.rules(only_process=77), processor)

    def verdict(name: str, *arguments: int) -> str | int:
        return decide(program, processor, call(name, processor), *arguments)

    assert verdict("kill", 77, 9) == ALLOW
    for victim in (76, 0, -1 & 0xFFFFFFFFFFFFFFFF, -77 & 0xFFFFFFFFFFFFFFFF):
        assert verdict("kill", victim, 9) == errno.EPERM
    assert verdict("tgkill", 77, 78, 9) == ALLOW
    assert verdict("tgkill", 76, 76, 9) == errno.EPERM
    assert verdict("clone", 0x11) == errno.EPERM
    assert verdict("clone", 0x3D0F00) == ALLOW
    for name in ("execve", "fchmod", "fchown", "utimensat", "pidfd_send_signal", "tkill"):
        assert verdict(name) == errno.EPERM, name


def test_other_processor_modes_and_newer_calls(processor: Processor) -> None:
    program = seccomp.assemble(seccomp.rules(only_process=None), processor)
    assert decide(program, processor, call("socket", processor), audit=0x40000003) == KILL  # i386
    assert decide(program, processor, 0x40000000 | 41) == errno.ENOSYS  # x32
    assert decide(program, processor, 460) == errno.ENOSYS
    assert decide(program, processor, 0) == ALLOW


def test_the_whole_word_of_an_argument_counts(processor: Processor) -> None:
    """The kernel cuts a process id to 32 bits: bits above must not hide another one."""
    program = seccomp.assemble(seccomp.rules(only_process=77), processor)
    assert decide(program, processor, call("kill", processor), (1 << 32) | 76, 9) == errno.EPERM
    assert decide(program, processor, call("kill", processor), (1 << 32) | 77, 9) == ALLOW
