"""How a sandbox is described, in YAML or in Python."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rllib_agentic.components import Settings


class SandboxSettings(Settings):
    """Isolation, limits and packages of a sandbox.

    Attributes:
        isolation: ``namespaces`` (Linux namespaces and a filter of system calls), ``landlock`` (for containers that
            forbid namespaces: Landlock and a stricter filter), ``auto`` for the first of these that works here, or
            ``none``: no protection, which warns.
        timeout_s: wall seconds of a call.
        cpu_s: CPU seconds of a call's main process.
        memory_mb: memory of a program, all of its processes together, beyond what the interpreter takes.
        processes: the most processes and threads of a program.
        file_mb: size of one file.
        disk_mb: size of the private folder. Lies in memory under ``namespaces``.
        open_files: the most open files of a process.
        output_bytes: how much of each output stream is kept.
        packages: modules that are loaded beforehand, so that a program's import of them costs nothing. All installed
            packages can be imported.
        warm_up: trusted code that the warm parent runs once, after it has loaded the packages: what it leaves in memory
            costs programs nothing.
        most_cells: calls and open sessions at one time; more of them wait.
    """

    isolation: Literal["auto", "namespaces", "landlock", "none"] = "auto"
    timeout_s: float = Field(default=5.0, gt=0, le=3600)
    cpu_s: float = Field(default=10.0, gt=0)
    memory_mb: int = Field(default=512, ge=16)
    processes: int = Field(default=16, ge=1)
    file_mb: int = Field(default=16, ge=1)
    disk_mb: int = Field(default=64, ge=1)
    open_files: int = Field(default=128, ge=16)
    output_bytes: int = Field(default=65536, ge=2)
    packages: tuple[str, ...] = ("numpy", "sympy")
    warm_up: str = ""
    most_cells: int = Field(default=256, ge=1)
