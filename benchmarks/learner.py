"""Learner throughput and peak memory: one optimizer step over the same rows, ours against plain training loops.

    python benchmarks/learner.py                           # tiny preset, 64 rows
    python benchmarks/learner.py --model smollm2 --rows 8  # SmolLM2-135M
    python benchmarks/learner.py --free                    # without a legal-token mask

Rows are multi-turn: random ids, 120 to 500 tokens of which about one in eight was sampled. With the legal-token mask
one action token in four is a choice among seven and the others are forced, as a trie of admissible actions makes them.
Every side runs in a process of its own, computes the gradient of the same clipped surrogate, and is compared with the
first one's. Tokens a second count row tokens without padding, against wall and against CPU time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from rllib_agentic.learner.gradients import collect_gradients
from rllib_agentic.learner.micro_batches import split_by_tokens
from rllib_agentic.learner.report import Tally
from rllib_agentic.learner.row_trainer import RowTrainer, make_optimizer
from rllib_agentic.learner.scoring import Scorer, find_head
from rllib_agentic.learner.settings import LearnerSettings, LearnerSetup
from rllib_agentic.learner.train_batch import TrainBatch, plan_minibatches
from rllib_agentic.losses.policy import PPOClip
from rllib_agentic.rl_module.llm_rl_module import LLMTorchRLModule
from rllib_agentic.trajectory import LegalTokens, Row

Side = Callable[[LLMTorchRLModule, TrainBatch, argparse.Namespace], None]


def draw_rows(count: int, vocabulary: int, *, legal: bool) -> list[Row]:
    """Random rows of several turns."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(count):
        length = int(rng.integers(120, 500))
        mask = np.zeros(length, np.bool_)
        position = 60
        while position < length - 10:
            spoken = int(rng.integers(3, 8))
            mask[position : position + spoken] = True
            position += spoken + int(rng.integers(20, 50))
        ids = rng.integers(0, vocabulary, length).astype(np.int32)
        choices = [
            np.unique([token, *(rng.integers(0, vocabulary, 6) if i % 4 == 0 else [])])
            for i, token in enumerate(ids[mask])
        ]
        offsets = np.cumsum([0, *map(len, choices)]).astype(np.int32)
        inside = np.where(mask, 0, -1).astype(np.int32)
        rows.append(
            Row(
                token_ids=ids,
                action_mask=mask,
                logprobs=np.where(mask, -1.0, 0.0).astype(np.float32),
                turn_index=inside,
                policy_versions=inside,
                advantages=np.where(mask, rng.normal(size=length), 0.0).astype(np.float32),
                rewards=np.zeros(length, np.float32),
                legal_tokens=LegalTokens(offsets, np.concatenate(choices).astype(np.int32)) if legal else None,
                trajectory=number,
            )
        )
    return rows


def plain(module: LLMTorchRLModule, batch: TrainBatch, rows_a_pass: int) -> None:
    """Full logits of every position, rows in the order they came, padded to the longest of the pass."""
    (minibatch,) = batch.minibatches
    for start in range(0, len(minibatch), rows_a_pass):
        rows = [batch.rows[i] for i in minibatch.rows[start : start + rows_a_pass]]
        longest = max(map(len, rows))
        ids = torch.zeros(len(rows), longest, dtype=torch.int64)
        attention = torch.zeros(len(rows), longest, dtype=torch.int64)
        for b, row in enumerate(rows):
            ids[b, : len(row)] = torch.from_numpy(row.token_ids)
            attention[b, : len(row)] = 1
        logits = module.model(input_ids=ids, attention_mask=attention, use_cache=False).logits.float()
        total = logits.new_zeros(())
        for b, row in enumerate(rows):
            mask = torch.from_numpy(row.action_mask)
            scores = logits[b, : len(row) - 1]
            if row.legal_tokens is not None:
                allowed = torch.zeros_like(scores, dtype=torch.bool)
                allowed[~mask[1:]] = True
                for i, position in enumerate(mask.nonzero().flatten().tolist()):
                    allowed[position - 1, torch.from_numpy(row.legal_tokens.at(i)).long()] = True
                scores = scores.masked_fill(~allowed, -torch.inf)
            logprobs = scores.log_softmax(-1).gather(-1, ids[b, 1 : len(row), None])[:, 0]
            surrogate = _surrogate(logprobs[mask[1:]], row)
            total = total + minibatch.weights[start + b] * surrogate
        total.backward()


def _surrogate(logprobs: Tensor, row: Row) -> Tensor:
    old, advantages = (torch.from_numpy(x[row.action_mask]) for x in (row.logprobs, row.advantages))
    ratio = (logprobs - old).exp()
    return torch.maximum(-ratio * advantages, -ratio.clamp(0.8, 1.2) * advantages).sum()


def packed(module: LLMTorchRLModule, batch: TrainBatch, budget: int) -> None:
    """Our scoring, but rows laid end to end with positions that begin anew, as many as fit in the budget."""
    (minibatch,) = batch.minibatches
    groups: list[list[int]] = [[]]
    for i in minibatch.rows.tolist():
        if groups[-1] and sum(len(batch.rows[j]) for j in groups[-1]) + len(batch.rows[i]) > budget:
            groups.append([])
        groups[-1].append(i)
    weight = dict(zip(minibatch.rows.tolist(), minibatch.weights.tolist(), strict=True))
    for group in groups:
        rows = [batch.rows[i] for i in group]
        ids = torch.from_numpy(np.concatenate([r.token_ids for r in rows])).long()[None]
        positions = torch.cat([torch.arange(len(r)) for r in rows])[None]
        hidden = module.hidden(ids, position_ids=positions)[0]
        total = hidden.new_zeros(())
        start = 0
        for i, row in zip(group, rows, strict=True):
            places = torch.from_numpy(row.action_mask.nonzero()[0]) + start
            scores = module.logits(hidden[places - 1]).float()
            if row.legal_tokens is not None:
                allowed = torch.zeros_like(scores, dtype=torch.bool)
                for a in range(len(places)):
                    allowed[a, torch.from_numpy(row.legal_tokens.at(a)).long()] = True
                scores = scores.masked_fill(~allowed, -torch.inf)
            logprobs = scores.log_softmax(-1).gather(-1, ids[0, places, None])[:, 0]
            total = total + weight[i] * _surrogate(logprobs, row)
            start += len(row)
        total.backward()


def ours(module: LLMTorchRLModule, batch: TrainBatch, budget: int) -> None:
    """The learner's own accumulation of one optimizer step."""
    setup = LearnerSetup(LearnerSettings(max_tokens_per_micro_batch=budget), PPOClip())
    policy = Scorer(module, 1.0, setup.settings.max_logits, None, find_head(module))
    trainer = RowTrainer(policy, None, make_optimizer(module, setup.settings), setup)
    old = {i: row.logprobs[row.action_mask] for i, row in enumerate(batch.rows)}
    trainer.accumulate(batch.rows, batch.minibatches[0], {"old_logprobs": old}, Tally(), first=True)


SIDES: dict[str, Side] = {
    "plain loop, a row at a time": lambda module, batch, _: plain(module, batch, 1),
    "plain padded batches": lambda module, batch, args: plain(module, batch, args.plain_rows),
    "packed rows": lambda module, batch, args: packed(module, batch, args.budget),
    "ours": lambda module, batch, args: ours(module, batch, args.budget),
}


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run one side; called in a fresh process, whose peak memory it then is."""
    torch.set_num_threads(args.threads)
    module = LLMTorchRLModule(
        observation_space=gym.spaces.Box(0, 1, (1,)),
        action_space=gym.spaces.Discrete(2),
        model_config={"preset": args.model, "value_head": False} | ({"seed": 0} if args.model == "tiny" else {}),
    )
    rows = draw_rows(args.rows, module.model.config.vocab_size, legal=not args.free)
    batch = plan_minibatches(rows)
    before = _peak_mb()
    best = {"wall": np.inf, "cpu": np.inf}
    for _ in range(args.repeats):
        module.zero_grad(set_to_none=True)
        wall, cpu = time.perf_counter(), time.process_time()
        SIDES[name](module, batch, args)
        best["wall"] = min(best["wall"], time.perf_counter() - wall)
        best["cpu"] = min(best["cpu"], time.process_time() - cpu)
    gradient = torch.cat([g.flatten() for g in collect_gradients(list(module.parameters()))])
    tokens = sum(map(len, rows))
    passes = len(split_by_tokens([len(r) for r in rows], args.budget))
    return {
        "side": name,
        "tokens_per_s": tokens / best["wall"],
        "tokens_per_cpu_s": tokens / best["cpu"],
        "peak_mb": _peak_mb() - before,
        "probe": gradient[:: max(1, len(gradient) // 10_000)].tolist(),
        "tokens": tokens,
        "passes": passes,
    }


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["tiny", "smollm2"], default="tiny")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--budget", type=int, default=4096, help="padded tokens a pass, ours and packed")
    parser.add_argument("--plain-rows", type=int, default=8, help="rows a pass of the plain padded batches")
    parser.add_argument("--repeats", type=int, default=3, help="the best one counts")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--free", action="store_true", help="no legal-token mask")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = []
    for name in SIDES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            results.append(pool.apply(measure, (name, args)))
    reference = np.array(results[0]["probe"])
    for result in results:
        probe = np.array(result.pop("probe"))
        result["gradient_difference"] = float(np.abs(probe - reference).max() / np.abs(reference).max())
    if args.json:
        print(json.dumps(results))
        return
    table = Table(title=f"{args.model}: {args.rows} rows, {results[0]['tokens']} tokens, {args.threads} thread(s)")
    for column in ("", "tokens/s", "ratio", "tokens/CPU s", "ratio", "peak MB above the model", "gradient difference"):
        table.add_column(column, justify="right" if column else "left")
    first = results[0]
    for r in results:
        table.add_row(
            r["side"],
            f"{r['tokens_per_s']:.0f}",
            f"{r['tokens_per_s'] / first['tokens_per_s']:.2f}",
            f"{r['tokens_per_cpu_s']:.0f}",
            f"{r['tokens_per_cpu_s'] / first['tokens_per_cpu_s']:.2f}",
            f"{r['peak_mb']:.0f}",
            f"{r['gradient_difference']:.1e}",
        )
    Console(width=max(Console().width, 120)).print(table)


if __name__ == "__main__":
    main()
