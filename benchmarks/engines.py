"""Sampled tokens a second of the engines ``hf`` and ``vllm`` at 1, 8 and 32 episodes.

    .venv-vllm/bin/python benchmarks/engines.py            # both, SmolLM2-135M in float32
    python benchmarks/engines.py --engines hf

``make test-vllm`` makes ``.venv-vllm``. All sides play the same episodes (those of ``benchmarks/rollout.py``): random
ids, 130 tokens of prompt that groups of four share, turns of 20 to 40 tokens, observations of 40 to 120, no environment
time; prefill counts. Each engine runs in a process of its own; vLLM's holds the model in another one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from importlib.util import find_spec
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


async def measure(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One engine at every number of episodes."""
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
    found = []
    for episodes in options.episodes:
        script = Script.draw(vocabulary, episodes, options.turns, group=4, legal=False)
        before, began = dict(engine.metrics()), time.perf_counter()
        sampled = await play(engine, script, f"{episodes}")
        seconds = time.perf_counter() - began
        read = engine.metrics()["prefilled_tokens"] - before["prefilled_tokens"]
        found.append({"engine": name, "episodes": episodes, "seconds": seconds, "sampled": sampled, "read": read})
        print(f"{name}, {episodes} episodes: {sampled / seconds:.1f} tokens/s", file=sys.stderr, flush=True)
    engine.close()
    return found


def run(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Called in a fresh process."""
    return asyncio.run(measure(name, options))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = ["hf", "vllm"] if find_spec("vllm") else ["hf"]
    parser.add_argument("--engines", nargs="+", choices=("hf", "vllm"), default=here)
    parser.add_argument("--episodes", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args()
    if "vllm" in options.engines and not find_spec("vllm"):
        parser.error("vLLM is not installed here: make test-vllm, then .venv-vllm/bin/python benchmarks/engines.py")
    rows: list[dict[str, Any]] = []
    for name in options.engines:
        # Not a pool: its workers are daemons, and vLLM starts a process of its own.
        receiver, sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
        process = multiprocessing.get_context("spawn").Process(target=_send, args=(sender, name, options))
        process.start()
        rows += receiver.recv()
        process.join()
    table = Table(title=f"SmolLM2-135M, float32, {options.turns} turns, {options.threads} thread(s)")
    for column in ("engine", "episodes", "sampled tokens/s", "seconds", "sampled", "read"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for row in rows:
        speed = f"{row['sampled'] / row['seconds']:.1f}"
        seconds = f"{row['seconds']:.1f}"
        table.add_row(row["engine"], str(row["episodes"]), speed, seconds, str(row["sampled"]), f"{row['read']:.0f}")
    Console().print(table)
    if options.json:
        print(json.dumps(rows))


def _send(sender: Any, name: str, options: argparse.Namespace) -> None:
    sender.send(run(name, options))


if __name__ == "__main__":
    main()
