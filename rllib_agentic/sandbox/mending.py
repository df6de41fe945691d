"""Which isolation works on this machine, and what to do where none does."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from rllib_agentic.errors import InfrastructureError
from rllib_agentic.sandbox.launch import IsolationError, WarmParent
from rllib_agentic.sandbox.settings import SandboxSettings

_KERNEL = "/proc/sys/kernel"


def working_isolations() -> tuple[list[str], list[str]]:
    """Try each isolation with a cell of its own.

    Returns:
        Those that work here, the preferred one first; and why the others do not.
    """
    working, faults = [], []
    settings = SandboxSettings(packages=())
    for isolation in ("namespaces", "landlock"):
        try:
            parent = WarmParent(settings, isolation)
        except (IsolationError, InfrastructureError) as error:
            faults.append(str(error))
            continue
        try:
            parent.cell()[0].close()
            working.append(isolation)
        except (IsolationError, InfrastructureError) as error:
            faults.append(str(error))
        finally:
            parent.close()
    return working, faults


def what_to_do() -> list[str]:
    """Commands, or other steps, that may let programs be isolated here. Guesses from what the kernel shows."""
    if sys.platform != "linux":
        return ["run it on Linux or in a Linux virtual machine; macOS and Windows have nothing that holds programs"]
    steps = []
    if _setting(f"{_KERNEL}/apparmor_restrict_unprivileged_userns") == "1" and os.geteuid() != 0:
        steps.append("sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0")
    if _setting(f"{_KERNEL}/unprivileged_userns_clone") == "0":
        steps.append("sudo sysctl kernel.unprivileged_userns_clone=1")
    if _setting("/proc/sys/user/max_user_namespaces") == "0":
        steps.append("sudo sysctl user.max_user_namespaces=15000")
    if any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))) or "KUBERNETES_SERVICE_HOST" in os.environ:
        steps.append("start the container with --security-opt seccomp=unconfined (Docker), which allows namespaces")
    version = tuple(int(part) for part in platform.release().split(".")[:2] if part.isdigit())
    if version < (6, 2):
        steps.append(f"a kernel from Linux 6.2 on, for Landlock (this is {platform.release()})")
    return steps or ["see docs/security.md"]


def _setting(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
