"""Sampled tokens a second of the engines ``hf`` and ``vllm`` at 1, 8 and 32 episodes, and how many times faster one is.

    .venv-vllm/bin/python benchmarks/engines.py            # both, SmolLM2-135M in float32
    python benchmarks/engines.py --engines hf

``make test-vllm`` makes ``.venv-vllm``. All sides play the same episodes (those of ``benchmarks/rollout.py``): random
ids, 130 tokens of prompt that groups of four share, turns of 20 to 40 tokens, observations of 40 to 120, no environment
time; prefill counts. Each engine runs in a process of its own; vLLM's holds the model in another one. They take turns,
so that what else the machine does falls on both, and medians are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import time
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from rollout import Script

from rllib_agentic.engines.engine import GenerationRequest, TurnSampler
from rllib_agentic.rl_module.model_loading import ModelSettings, load_config, load_model
from rllib_agentic.rl_module.smollm2 import smollm2_folder

LONGEST = 1024


async def play(engine: TurnSampler, script: Script, run: str) -> int:
    """All episodes at once; returns how many tokens were sampled."""

    async def episode(e: int) -> int:
        context, sampled = script.prompts[e], 0
        for turn, observation in enumerate(script.observations[e]):
            wanted = int(script.turn_tokens[e, turn])
            request = GenerationRequest(context, wanted, seed=1000 * e + turn, episode_id=f"{run}/{e}")
            completion = await engine.generate(request)
            sampled += len(completion.ids)
            context = np.concatenate([context, completion.ids, observation])
        await engine.release(f"{run}/{e}")
        return sampled

    return sum(await asyncio.gather(*map(episode, range(len(script.prompts)))))


async def serve(name: str, options: argparse.Namespace, orders: Connection) -> None:
    """One engine: answers each number of episodes that comes with what it took, until None comes."""
    torch.set_num_threads(options.threads)
    settings = ModelSettings(preset="smollm2")
    vocabulary = load_config(settings).vocab_size
    engine: Any
    if name == "hf":
        from rllib_agentic.engines.hf import HFEngine

        engine = HFEngine(load_model(settings))
    else:
        from rllib_agentic.engines.vllm import VLLMEngine

        engine = VLLMEngine(
            str(smollm2_folder()),
            policy_version=0,
            dtype="float32",
            kv_cache_memory_bytes=2 << 30,
            max_model_len=LONGEST,
            max_num_seqs=max(options.episodes),
        )
    await play(engine, Script.draw(vocabulary, 2, 1, group=1, legal=False), "warm-up")
    orders.send("ready")
    while (order := await asyncio.to_thread(orders.recv)) is not None:
        episodes, seed = order
        # Every time other ids: vLLM would still know the old ones.
        script = Script.draw(vocabulary, episodes, options.turns, group=4, legal=False, seed=seed)
        before, began = dict(engine.metrics()), time.perf_counter()
        sampled = await play(engine, script, f"{seed}/{episodes}")
        seconds = time.perf_counter() - began
        read = engine.metrics()["prefilled_tokens"] - before["prefilled_tokens"]
        orders.send(
            {"engine": name, "episodes": episodes, "seed": seed, "seconds": seconds, "sampled": sampled, "read": read}
        )
    engine.close()


def run(name: str, options: argparse.Namespace, orders: Connection) -> None:
    """Called in a fresh process."""
    asyncio.run(serve(name, options, orders))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = ["hf", "vllm"] if find_spec("vllm") else ["hf"]
    parser.add_argument("--engines", nargs="+", choices=("hf", "vllm"), default=here)
    parser.add_argument("--episodes", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args()
    if "vllm" in options.engines and not find_spec("vllm"):
        parser.error("vLLM is not installed here: make test-vllm, then .venv-vllm/bin/python benchmarks/engines.py")
    rows = measure(options)
    table = Table(
        title=f"SmolLM2-135M, float32, {options.turns} turns, {options.threads} thread(s), {options.times} times"
    )
    for column in ("episodes", "engine", "sampled tokens/s", "from", "to", "sampled", "read", "vllm / hf"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for episodes in options.episodes:
        speeds = {}
        for name in options.engines:
            found = [row for row in rows if (row["engine"], row["episodes"]) == (name, episodes)]
            speeds[name] = [row["sampled"] / row["seconds"] for row in found]
            speed = [f"{of(speeds[name]):.1f}" for of in (statistics.median, min, max)]
            counts = [f"{statistics.mean(row[key] for row in found):.0f}" for key in ("sampled", "read")]
            table.add_row(str(episodes), name, *speed, *counts, ratio(speeds) if name == options.engines[-1] else "")
    Console(width=110).print(table)
    if options.json:
        print(json.dumps(rows))


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All engines, each number of episodes, so many times; in turn."""
    context = multiprocessing.get_context("spawn")
    sides = {}
    for name in options.engines:
        ours, theirs = context.Pipe()
        # Not a pool: its workers are daemons, and vLLM starts a process of its own.
        process = context.Process(target=run, args=(name, options, theirs))
        process.start()
        theirs.close()
        sides[name] = (process, ours)
    for _, orders in sides.values():
        orders.recv()
    rows = []
    for seed in range(options.times):
        for episodes in options.episodes:
            for name, (_, orders) in sides.items():
                orders.send((episodes, seed))
                rows.append(orders.recv())
                speed = rows[-1]["sampled"] / rows[-1]["seconds"]
                print(f"{name}, {episodes} episodes: {speed:.1f} tokens/s", file=sys.stderr, flush=True)
    for process, orders in sides.values():
        orders.send(None)
        process.join()
    return rows


def ratio(speeds: dict[str, list[float]]) -> str:
    """The median of vLLM's speed over that of ``hf`` in the same episodes."""
    if len(speeds) < 2:
        return ""
    pairs = zip(speeds["vllm"], speeds["hf"], strict=True)
    return f"{statistics.median(fast / slow for fast, slow in pairs):.2f}"


if __name__ == "__main__":
    main()
