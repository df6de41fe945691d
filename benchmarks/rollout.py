"""Rollout throughput: the in-process engine against lock-step ``generate`` that reads the whole history every turn.

    python benchmarks/rollout.py                 # SmolLM2-135M, 16 episodes of 8 turns
    python benchmarks/rollout.py --model tiny    # the small decoder, 64 episodes
    python benchmarks/rollout.py --model tiny --legal --episodes 256    # one choice among legal tokens a turn

Both sides play the same episodes in one run: equal prompts, observations (40 to 120 tokens) and turn lengths (20 to 40
tokens, drawn once), no environment time. A lock-step turn lasts as long as its longest row. Tokens a second count
sampled tokens that the episodes asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from rllib_agentic.engines.engine import GenerationRequest
from rllib_agentic.engines.hf import HFEngine
from rllib_agentic.engines.legal_tokens import TokenTrie
from rllib_agentic.rl_module.model_loading import ModelSettings, load_model

PROMPT_TOKENS = 100
TASK_TOKENS = 30
FIRST_ID = 20  # below lie the control tokens of both presets


@dataclass(frozen=True)
class Script:
    """What the episodes say and hear, as random ids: prompts, observations, lengths of turns, legal tokens."""

    prompts: list[np.ndarray]
    observations: list[list[np.ndarray]]
    turn_tokens: np.ndarray
    legal: list[list[TokenTrie | None]]

    @classmethod
    def draw(cls, vocabulary: int, episodes: int, turns: int, *, group: int, legal: bool, seed: int = 0) -> Script:
        """Groups of equal prompts; all prompts begin alike, as with one system message."""
        rng = np.random.default_rng(seed)

        def ids(length: int) -> np.ndarray:
            return rng.integers(FIRST_ID, vocabulary, length).astype(np.int32)

        system, tasks = ids(PROMPT_TOKENS), [ids(TASK_TOKENS) for _ in range(-(-episodes // group))]
        tries = [
            [TokenTrie([[int(i), 2] for i in ids(6)]) if legal else None for _ in range(turns)] for _ in range(episodes)
        ]
        return cls(
            prompts=[np.concatenate([system, tasks[e // group]]) for e in range(episodes)],
            observations=[[ids(int(rng.integers(40, 121))) for _ in range(turns)] for _ in range(episodes)],
            turn_tokens=rng.integers(20, 41, (episodes, turns)),
            legal=tries,
        )


@dataclass(frozen=True)
class Measured:
    """What one side took."""

    side: str
    seconds: float
    cpu_seconds: float
    turns: int
    sampled_tokens: int
    read_tokens: int


def measure_engine(model: torch.nn.Module, script: Script) -> Measured:
    engine = HFEngine(model)

    async def episode(e: int) -> None:
        context = script.prompts[e]
        for turn, observation in enumerate(script.observations[e]):
            completion = await engine.generate(
                GenerationRequest(
                    context,
                    max_tokens=int(script.turn_tokens[e, turn]),
                    seed=1000 * e + turn,
                    legal=script.legal[e][turn],
                    episode_id=str(e),
                )
            )
            context = np.concatenate([context, completion.ids, observation])
        await engine.release(str(e))

    async def play() -> None:
        await asyncio.gather(*map(episode, range(len(script.prompts))))

    wall, cpu = time.perf_counter(), time.process_time()
    asyncio.run(play())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    metrics = engine.metrics()
    engine.close()
    sampled = int(metrics["sampled_tokens"] + metrics["forced_tokens"])
    return Measured("HFEngine", wall, cpu, script.turn_tokens.size, sampled, int(metrics["prefilled_tokens"]))


@torch.inference_mode()
def measure_lock_step(model: torch.nn.Module, script: Script) -> Measured:
    contexts = list(script.prompts)
    sampled = read = 0
    torch.manual_seed(0)
    wall, cpu = time.perf_counter(), time.process_time()
    for turn in range(script.turn_tokens.shape[1]):
        wanted = script.turn_tokens[:, turn] if script.legal[0][turn] is None else np.full(len(contexts), 2)
        longest = max(map(len, contexts))
        input_ids = torch.zeros(len(contexts), longest, dtype=torch.int64)
        attention_mask = torch.zeros_like(input_ids)
        for e, context in enumerate(contexts):
            input_ids[e, longest - len(context) :] = torch.from_numpy(context)
            attention_mask[e, longest - len(context) :] = 1
        output = model.generate(  # type: ignore[operator]
            input_ids=input_ids,
            attention_mask=attention_mask,
            max_new_tokens=int(wanted.max()),
            do_sample=True,
            top_k=0,
            top_p=1.0,
            eos_token_id=None,
            pad_token_id=0,
            prefix_allowed_tokens_fn=_allowed(script, turn, longest),
        )
        for e, context in enumerate(contexts):
            action = output[e, longest : longest + int(wanted[e])].numpy().astype(np.int32)
            contexts[e] = np.concatenate([context, action, script.observations[e][turn]])
        sampled += int(wanted.sum())
        read += input_ids.numel() + len(contexts) * int(wanted.max() - 1)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Measured("lock-step generate", wall, cpu, script.turn_tokens.size, sampled, read)


def _allowed(script: Script, turn: int, start: int):
    if script.legal[0][turn] is None:
        return None

    def allowed(e: int, ids: torch.Tensor) -> list[int]:
        trie = script.legal[e][turn]
        assert trie is not None
        return trie.at(ids[start:].tolist()).tolist()

    return allowed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("smollm2", "tiny"), default="smollm2")
    parser.add_argument("--episodes", type=int, help="default 16, with tiny 64")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--group", type=int, default=4, help="episodes that share a prompt")
    parser.add_argument("--legal", action="store_true", help="turns of one choice among six legal tokens")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args()
    episodes = options.episodes or (16 if options.model == "smollm2" else 64)
    torch.set_num_threads(options.threads)

    model = load_model(ModelSettings(preset=options.model), seed=0)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    script = Script.draw(vocabulary, episodes, options.turns, group=options.group, legal=options.legal)
    warm_up = Script.draw(vocabulary, 2, 1, group=1, legal=options.legal)
    sides = []
    for measure in (measure_engine, measure_lock_step):
        measure(model, warm_up)
        sides.append(measure(model, script))
        print(f"{sides[-1].side}: {sides[-1].seconds:.1f} s", file=sys.stderr, flush=True)

    table = Table(title=f"{options.model}: {episodes} episodes, {options.turns} turns, {options.threads} thread(s)")
    for column in ("", "tokens/s", "turns/s", "seconds", "CPU seconds", "sampled tokens", "tokens through the model"):
        table.add_column(column, justify="left" if not column else "right")
    for side in sides:
        table.add_row(
            side.side,
            f"{side.sampled_tokens / side.seconds:.1f}",
            f"{side.turns / side.seconds:.1f}",
            f"{side.seconds:.2f}",
            f"{side.cpu_seconds:.2f}",
            str(side.sampled_tokens),
            str(side.read_tokens),
        )
    console = Console()
    console.print(table)
    ratio = (sides[0].sampled_tokens / sides[0].seconds) / (sides[1].sampled_tokens / sides[1].seconds)
    cpu_ratio = (sides[0].sampled_tokens / sides[0].cpu_seconds) / (sides[1].sampled_tokens / sides[1].cpu_seconds)
    console.print(f"HFEngine samples {ratio:.2f} times the tokens a second ({cpu_ratio:.2f} times a CPU second).")
    if options.json:
        print(json.dumps({"ratio": ratio, "cpu_ratio": cpu_ratio, "sides": [vars(side) for side in sides]}))


if __name__ == "__main__":
    main()
