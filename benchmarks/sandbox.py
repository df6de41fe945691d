"""Calls a second of the sandbox, against an interpreter started for each call.

    python benchmarks/sandbox.py            # what `isolation: auto` chooses
    python benchmarks/sandbox.py landlock

Both sides take turns within one run, so that other work on the machine falls on both.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rllib_agentic.sandbox import SandboxSettings, WarmSandbox

PROGRAMS = {
    "print(1)": "1\n",
    "import sympy; print(sympy.factorint(360360))": "{2: 3, 3: 2, 5: 1, 7: 1, 11: 1, 13: 1}\n",
}
IN_FLIGHT = (1, 16)
ROUNDS = 5


def rate(call: Callable[[], str], calls: int, in_flight: int, expected: str) -> float:
    with ThreadPoolExecutor(in_flight) as threads:
        list(threads.map(lambda _: call(), range(in_flight)))
        began = time.perf_counter()
        answers = list(threads.map(lambda _: call(), range(calls)))
        seconds = time.perf_counter() - began
    if set(answers) != {expected}:
        raise SystemExit(f"a call gave {set(answers)}, expected {expected!r}")
    return calls / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("isolation", nargs="?", default="auto")
    given = parser.parse_args()
    with WarmSandbox(SandboxSettings(isolation=given.isolation)) as sandbox:
        print(f"isolation {sandbox.isolation}; medians of {ROUNDS} rounds, calls a second")
        for program, expected in PROGRAMS.items():

            def plain(program: str = program) -> str:
                return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout

            def warm(program: str = program) -> str:
                return sandbox.run(program, timeout_s=60).stdout

            for in_flight in IN_FLIGHT:
                rounds = [
                    (rate(warm, 50, in_flight, expected), rate(plain, 8, in_flight, expected)) for _ in range(ROUNDS)
                ]
                ours, theirs = (statistics.median(side) for side in zip(*rounds, strict=True))
                ratio = statistics.median(ours / theirs for ours, theirs in rounds)
                print(f"{program!r}, {in_flight} in flight: {ours:.0f} against {theirs:.1f}, ratio {ratio:.1f}")
        with sandbox.session() as session:
            session.run("x = 1")
            rounds_ms = []
            for _ in range(200):
                began = time.perf_counter()
                session.run("print(x)")
                rounds_ms.append((time.perf_counter() - began) * 1000)
            print(f"a call of a session that is open: {statistics.median(rounds_ms):.2f} ms")


if __name__ == "__main__":
    main()
