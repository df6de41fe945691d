"""Draws tokens from logits, a batch at a time, so that every row's result depends on that row alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rllib_agentic.trajectory.turn import Ids

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK64 = (1 << 64) - 1


class Draw(NamedTuple):
    """How one row is to be sampled; the fields mean what they mean in ``GenerationRequest``."""

    temperature: float
    seed: int
    position: int
    top_p: float = 1.0
    top_k: int = 0
    legal: Ids | None = None


class Drawn(NamedTuple):
    """Sampled ids int64 ``[R]``, their logprobs float32 ``[R]``; a logprob is NaN where the logits were not finite."""

    ids: npt.NDArray[np.int64]
    logprobs: npt.NDArray[np.float32]


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> npt.NDArray[np.float64]:
    """Noise in [0, 1) that depends on (seed, position) alone: no generator state, no batch order.

    Output number ``position`` of the SplitMix64 stream (Steele, Lea and Flood 2014) whose state is the mixed seed.
    """
    state = _mix(np.array([seed & _MASK64 for seed in seeds], np.uint64) + _GOLDEN)
    counter = np.array(positions, np.uint64) + np.uint64(1)
    return (_mix(state + counter * _GOLDEN) >> np.uint64(16)).astype(np.float64) * 2.0**-48


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def draw(logits_RV: Tensor, draws: Sequence[Draw]) -> Drawn:
    """Sample one token a row by inverting the cumulative distribution at the row's noise.

    The distribution is the softmax of the legal logits over the temperature, then cut by top-k, then by top-p;
    the logprob is that distribution's. Greedy rows (temperature 0) take the best legal token, with its logprob at
    temperature 1 and without truncation.

    Args:
        logits_RV: ``[R, V]``, any float type.
        draws: one a row.
    """
    noise = uniforms([d.seed for d in draws], [d.position for d in draws])
    ids = np.zeros(len(draws), np.int64)
    logprobs = np.full(len(draws), np.nan, np.float32)
    free = [r for r, d in enumerate(draws) if d.legal is None]
    masked = [r for r, d in enumerate(draws) if d.legal is not None]
    if free:
        scores = logits_RV.float() if len(free) == len(draws) else logits_RV[free].float()
        choice, logprobs[free] = _invert(scores, [draws[r] for r in free], noise[free])
        ids[free] = choice
    if masked:
        legal = [d.legal for d in draws if d.legal is not None]
        counts = np.array([len(a) for a in legal])
        inside = np.arange(counts.max()) < counts[:, None]
        columns = np.zeros(inside.shape, np.int64)
        columns[inside] = np.concatenate(legal)
        rows = torch.tensor(masked, device=logits_RV.device)[:, None]
        scores = logits_RV[rows, torch.from_numpy(columns).to(logits_RV.device)].float()
        scores.masked_fill_(torch.from_numpy(~inside).to(scores.device), -torch.inf)
        choice, logprobs[masked] = _invert(scores, [draws[r] for r in masked], noise[masked])
        ids[masked] = columns[np.arange(len(masked)), choice]
    return Drawn(ids, logprobs)


def _invert(
    scores_RL: Tensor, draws: Sequence[Draw], noise: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    device = scores_RL.device
    greedy = [d.temperature == 0 for d in draws]
    if any(d.temperature not in (0, 1) for d in draws):
        temperatures = torch.tensor([d.temperature or 1.0 for d in draws], device=device)
        scores_RL = scores_RL / temperatures[:, None]
    logprobs_RL = torch.log_softmax(scores_RL, dim=-1)
    for r, d in enumerate(draws):
        if not greedy[r] and (d.top_p < 1 or d.top_k > 0):
            logprobs_RL[r] = truncate(logprobs_RL[r], d.top_p, d.top_k)
    if all(greedy):
        choice = logprobs_RL.argmax(dim=-1, keepdim=True)
    else:
        cumulative = logprobs_RL.double().exp_().cumsum(dim=-1)
        target = torch.from_numpy(noise).to(device)[:, None] * cumulative[:, -1:]
        choice = torch.searchsorted(cumulative, target, right=True).clamp_(max=scores_RL.shape[1] - 1)
        if any(greedy):
            choice = torch.where(
                torch.tensor(greedy, device=device)[:, None], logprobs_RL.argmax(dim=-1, keepdim=True), choice
            )
    chosen = logprobs_RL.gather(1, choice)[:, 0]
    return choice[:, 0].cpu().numpy(), chosen.masked_fill(~chosen.isfinite(), torch.nan).cpu().numpy()


def truncate(logprobs_L: Tensor, top_p: float, top_k: int) -> Tensor:
    """Keep the ``top_k`` best tokens, of those the fewest whose mass reaches ``top_p``; renormalise."""
    ordered, order = logprobs_L.sort(descending=True, stable=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if top_k > 0:
        keep[top_k:] = False
    if top_p < 1:
        mass = torch.softmax(ordered.masked_fill(~keep, -torch.inf), dim=-1).double()
        keep &= mass.cumsum(0) - mass < top_p
    kept = torch.full_like(logprobs_L, -torch.inf)
    kept[order[keep]] = logprobs_L[order[keep]]
    return torch.log_softmax(kept, dim=-1)
