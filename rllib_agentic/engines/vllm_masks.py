"""Inside vLLM: the legal-token mask of each request, and truncation that renormalises as engine ``hf`` does.

vLLM loads these classes by name, in the process that holds the model. What a request needs comes in
``SamplingParams.extra_args``: :data:`LEGAL` holds the legal turns as lists of ids, :data:`TAKEN` what of the turn was
decided before the request, :data:`TRUNCATE` the pair ``(top_p, top_k)``.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, process_dict_updates

from rllib_agentic.engines.legal_tokens import TokenTrie, TrieNode
from rllib_agentic.engines.sampling import truncate

LEGAL = "rllib_agentic_legal"
TAKEN = "rllib_agentic_taken"
TRUNCATE = "rllib_agentic_truncate"


class _Walker:
    """Follows one request's turn through its trie."""

    def __init__(self, sequences: list[list[int]], taken: list[int], output_ids: list[int]) -> None:
        self._node: TrieNode | None = TokenTrie(sequences).root
        self._output_ids = output_ids  # vLLM's own list: it grows
        self._read = 0
        for token in taken:
            self._step(token)

    def legal(self) -> list[int]:
        """The legal next ids; empty where the turn is over and nobody reads on."""
        for token in self._output_ids[self._read :]:
            self._step(token)
        self._read = len(self._output_ids)
        return [] if self._node is None else self._node.legal.tolist()

    def _step(self, token: int) -> None:
        self._node = None if self._node is None else self._node.children.get(token)


class LegalTokenMask(LogitsProcessor):
    """Leaves the legal tokens alone; all others get minus infinity."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._walkers: dict[int, _Walker] = {}

    def is_argmax_invariant(self) -> bool:
        """The best token may be illegal."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests that come, go and move."""
        process_dict_updates(self._walkers, batch_update, _walker)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Mask ``[B, V]`` in place."""
        for row, walker in self._walkers.items():
            if legal := walker.legal():
                places = torch.tensor(legal, device=logits.device)
                kept = logits[row, places]
                logits[row].fill_(-torch.inf)
                logits[row, places] = kept
        return logits


class TruncateDistribution(LogitsProcessor):
    """Keeps the most probable tokens after the temperature, so that logprobs are of the truncated distribution."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._limits: dict[int, tuple[float, int]] = {}

    def is_argmax_invariant(self) -> bool:
        """The best token always stays; vLLM then calls it behind the temperature."""
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests that come, go and move."""
        process_dict_updates(self._limits, batch_update, _limits)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Truncate ``[B, V]`` in place."""
        for row, (top_p, top_k) in self._limits.items():
            logits[row] = truncate(torch.log_softmax(logits[row], dim=-1), top_p, top_k)
        return logits


def _walker(params: SamplingParams, prompt_ids: list[int] | None, output_ids: list[int]) -> _Walker | None:
    extra = params.extra_args or {}
    return _Walker(extra[LEGAL], extra.get(TAKEN, []), output_ids) if LEGAL in extra else None


def _limits(params: SamplingParams, prompt_ids: list[int] | None, output_ids: list[int]) -> tuple[float, int] | None:
    found: Any = (params.extra_args or {}).get(TRUNCATE)
    return None if found is None else (float(found[0]), int(found[1]))
