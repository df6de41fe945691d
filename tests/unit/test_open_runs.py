"""Whatever ends the process, a run that is open is told the truth (TK07)."""

from __future__ import annotations

import signal
import subprocess
import sys

from rllib_agentic.tracking.open_runs import OpenRuns, RunStatus

ENDINGS = {
    "os.kill(os.getpid(), signal.SIGTERM)": ("KILLED", -signal.SIGTERM),
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); os.kill(os.getpid(), signal.SIGTERM)": ("KILLED", 7),
    "raise KeyboardInterrupt": ("KILLED", 1),
    "raise RuntimeError": ("FAILED", 1),
    "sys.exit(3)": ("KILLED", 3),
    "run.end(RunStatus.FINISHED)": ("FINISHED", 0),
}

SCRIPT = """
import os, signal, sys
from rllib_agentic.tracking.open_runs import RunStatus, open_runs

class Run:
    def end(self, status):
        open_runs.remove(self)
        print(status.value)
    def flush(self):
        sys.stdout.flush()

for ending in sys.argv[1:]:  # a child each: importing once is enough
    child = os.fork()
    if not child:
        run = Run()
        open_runs.add(run)
        exec(ending)
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_status_when_the_process_goes_with_an_open_run() -> None:
    process = subprocess.run([sys.executable, "-c", SCRIPT, *ENDINGS], capture_output=True, text=True, timeout=300)
    assert process.stdout.split() == [str(word) for ending in ENDINGS.values() for word in ending], process.stderr


def test_an_earlier_sigterm_handler_is_called_and_comes_back() -> None:
    calls: list[object] = []

    class Run:
        def end(self, status: RunStatus) -> None:
            calls.append(status)
            runs.remove(self)

        def flush(self) -> None:
            calls.append("flushed")

    def earlier(number: int, frame: object) -> None:
        calls.append(number)

    original = signal.signal(signal.SIGTERM, earlier)
    try:
        runs = OpenRuns()
        runs.add(Run())
        assert signal.getsignal(signal.SIGTERM) is not earlier
        signal.raise_signal(signal.SIGTERM)
        assert calls == [RunStatus.KILLED, "flushed", signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is earlier
    finally:
        signal.signal(signal.SIGTERM, original)
