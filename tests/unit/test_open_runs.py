"""Whatever ends the process, a run that is open is told the truth (TK07)."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from rllib_agentic.tracking.open_runs import OpenRuns, RunStatus

SCRIPT = """
import os, signal, sys
from rllib_agentic.tracking.open_runs import open_runs
class Run:
    def end_now(self, status):
        open_runs.remove(self)
        print(status.value, flush=True)
run = Run()
before = signal.getsignal(signal.SIGTERM)
open_runs.add(run)
"""


@pytest.mark.parametrize(
    ("ending", "status", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM)", "KILLED", -signal.SIGTERM),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); os.kill(os.getpid(), signal.SIGTERM)", "KILLED", 7),
        ("raise KeyboardInterrupt", "KILLED", -signal.SIGINT),
        ("raise RuntimeError", "FAILED", 1),
        ("sys.exit(3)", "KILLED", 3),
        ("run.end_now(__import__('enum').Enum('S', {'X': 'FINISHED'}).X)", "FINISHED", 0),
    ],
)
def test_status_when_the_process_goes_with_an_open_run(ending: str, status: str, code: int) -> None:
    process = subprocess.run([sys.executable, "-c", SCRIPT + ending], capture_output=True, text=True, timeout=120)
    assert (process.stdout.split(), process.returncode) == ([status], code), process.stderr


def test_an_earlier_sigterm_handler_is_called_and_comes_back() -> None:
    calls: list[object] = []

    class Run:
        def end_now(self, status: RunStatus) -> None:
            calls.append(status)
            runs.remove(self)

    def earlier(number: int, frame: object) -> None:
        calls.append(number)

    original = signal.signal(signal.SIGTERM, earlier)
    try:
        runs = OpenRuns()
        runs.add(Run())
        assert signal.getsignal(signal.SIGTERM) is not earlier
        signal.raise_signal(signal.SIGTERM)
        assert calls == [RunStatus.KILLED, signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is earlier
    finally:
        signal.signal(signal.SIGTERM, original)
