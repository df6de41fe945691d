"""The memory calculator of ``rllib train file F --dry-run`` against measured peaks, on the CPU.

    python benchmarks/memory.py                  # SmolLM2-135M: learner at two sizes of a micro-batch, runner
    python benchmarks/memory.py --model 52m      # twelve layers of width 512: nothing was fitted to this one

Every measurement is a process of its own: the largest resident set while it takes two optimizer steps (or while engine
``hf`` plays one turn for many episodes), less what the process had before the model was loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from rllib_agentic.algorithms.grpo import GRPOConfig
from rllib_agentic.cli.memory import estimate_memory
from rllib_agentic.engines.engine import GenerationRequest
from rllib_agentic.engines.hf import HFEngine
from rllib_agentic.learner.row_trainer import RowTrainer, make_optimizer
from rllib_agentic.learner.scoring import Scorer, find_head
from rllib_agentic.learner.settings import LearnerSettings, LearnerSetup
from rllib_agentic.learner.train_batch import plan_minibatches
from rllib_agentic.losses.policy import PPOClip
from rllib_agentic.rl_module.llm_rl_module import LLMTorchRLModule
from rllib_agentic.trajectory import Row

ROW_TOKENS = 512
MODELS: dict[str, dict[str, Any]] = {
    "smollm2": {"preset": "smollm2"},
    "52m": {"preset": "tiny", "hidden_size": 512, "num_layers": 12, "num_heads": 8},
}


def peak_gb() -> float:
    """The largest resident set so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def config_of(case: dict[str, Any]) -> GRPOConfig:
    """The config whose memory is estimated."""
    episodes = case.get("episodes", 4)
    return (
        GRPOConfig()
        .environment("bandit")
        .update_from_dict(
            {
                "model": {**MODELS[case["model"]], "gradient_checkpointing": case.get("checkpointing", False)},
                "learner": {"max_tokens_per_micro_batch": case.get("tokens", ROW_TOKENS)},
                "rollout": {
                    "max_context_tokens": case.get("context", ROW_TOKENS),
                    "max_tokens_per_turn": 16,
                    "group_size": episodes,
                    "groups_per_iteration": 1,
                },
            }
        )
    )


def measure(case: dict[str, Any]) -> float:
    """Run one case; called in a fresh process."""
    torch.set_num_threads(1)
    before = peak_gb()
    module = LLMTorchRLModule(
        observation_space=gym.spaces.Box(0, 1, (1,)),
        action_space=gym.spaces.Discrete(2),
        model_config={
            **MODELS[case["model"]],
            "value_head": False,
            "gradient_checkpointing": case.get("checkpointing", False),
        },
    )
    (_train if case["part"] == "learner" else _play)(module, case)
    return peak_gb() - before


def _train(module: LLMTorchRLModule, case: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for number in range(2 * case["tokens"] // ROW_TOKENS):
        mask = np.arange(ROW_TOKENS) % 64 >= 56
        turn = np.where(mask, 0, -1).astype(np.int32)
        zeros = np.zeros(ROW_TOKENS, np.float32)
        ids = rng.integers(3, module.model.config.vocab_size, ROW_TOKENS).astype(np.int32)
        advantages = np.where(mask, rng.normal(size=ROW_TOKENS), 0).astype(np.float32)
        rows.append(Row(ids, mask, zeros, turn, turn, advantages, zeros, trajectory=number))
    settings = LearnerSettings(max_tokens_per_micro_batch=case["tokens"], lr=1e-6)
    setup = LearnerSetup(settings, PPOClip())
    module.train(case.get("checkpointing", False))
    scorer = Scorer(module, 1.0, settings.max_logits, None, find_head(module))
    trainer = RowTrainer(scorer, None, make_optimizer(module, settings), setup)
    for _ in range(2):
        trainer.train(plan_minibatches(rows))


def _play(module: LLMTorchRLModule, case: dict[str, Any]) -> None:
    engine = HFEngine(module.model)
    rng = np.random.default_rng(0)
    high = module.model.config.vocab_size

    async def play() -> None:
        contexts = [rng.integers(3, high, case["context"] - 16).astype(np.int32) for _ in range(case["episodes"])]
        requests = [GenerationRequest(c, 16, episode_id=str(i)) for i, c in enumerate(contexts)]
        await asyncio.gather(*map(engine.generate, requests))

    asyncio.run(play())
    engine.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="smollm2")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    model = options.model
    cases: list[dict[str, Any]] = [
        {"part": "learner", "model": model, "tokens": 512},
        {"part": "learner", "model": model, "tokens": 2048},
        {"part": "learner", "model": model, "tokens": 2048, "checkpointing": True},
        *({"part": "env_runner", "model": model, "context": 512, "episodes": number} for number in (4, 16, 32, 48)),
    ]
    found = []
    for case in cases:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            measured = pool.apply(measure, (case,))
        estimated = estimate_memory(config_of(case))[f"{case['part']}_gb"]
        found.append(case | {"estimated_gb": estimated, "measured_gb": round(measured, 2)})
    table = Table(title=f"{model}, float32, rows of {ROW_TOKENS} tokens")
    for column in ("part", "pass", "episodes", "checkpoints", "estimated GB", "measured GB", "ratio"):
        table.add_column(column, justify="left" if column == "part" else "right")
    for row in found:
        table.add_row(
            row["part"],
            str(row.get("tokens", "")),
            str(row.get("episodes", "")),
            "yes" if row.get("checkpointing") else "",
            f"{row['estimated_gb']:.2f}",
            f"{row['measured_gb']:.2f}",
            f"{row['estimated_gb'] / row['measured_gb']:.2f}",
        )
    Console(width=110).print(table)
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
