"""A tiny causal LM with random weights, a byte-level tokenizer, and the plain forward that engines are held against."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rllib_agentic.engines.engine import Completion, GenerationRequest
from rllib_agentic.engines.hf import HFEngine

VOCABULARY = 53
STOP = 2


def tiny_model(seed: int = 0, *, vocabulary: int = VOCABULARY, kv_heads: int = 2) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        max_position_embeddings=512,
        initializer_range=0.4,
    )
    return LlamaForCausalLM(config).eval()


def byte_tokenizer(merges: Sequence[tuple[str, str]] = ()) -> PreTrainedTokenizerFast:
    """Ids 0 to 3 are control tokens (3 is ``<tool>``), then 256 bytes, then the merged tokens."""
    tokens = ["<pad>", "<start>", "<end>", "<tool>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens += [a + b for a, b in merges]
    backend = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<start>",
        eos_token="<end>",
        additional_special_tokens=["<tool>"],
    )


def ids_of(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


def random_ids(length: int, seed: int = 0, vocabulary: int = VOCABULARY) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, vocabulary, length).astype(np.int32)


def run_all(engine: HFEngine, requests: Sequence[GenerationRequest]) -> list[Completion]:
    """Answer the requests, all waiting at once."""

    async def gather() -> list[Completion]:
        return list(await asyncio.gather(*map(engine.generate, requests)))

    return asyncio.run(gather())


def run_one(engine: HFEngine, context: np.ndarray, max_tokens: int = 4, **fields: Any) -> Completion:
    return run_all(engine, [GenerationRequest(context, max_tokens, **fields)])[0]


@torch.no_grad()
def plain_logprobs(model: Any, request: GenerationRequest, completion: Completion) -> np.ndarray:
    """The sampled tokens' logprobs from one forward over the whole sequence, without any cache."""
    ids = np.concatenate([request.context_ids, completion.ids]).astype(np.int64)
    logits = model(input_ids=torch.from_numpy(ids)[None], use_cache=False).logits[0].double()
    start, logprobs = len(request.context_ids), []
    for i, token in enumerate(completion.ids.tolist()):
        row = logits[start + i - 1] / (request.temperature or 1.0)
        if completion.legal_tokens is not None:
            legal = torch.from_numpy(completion.legal_tokens.at(i).astype(np.int64))
            row = torch.full_like(row, -torch.inf).index_copy(0, legal, row[legal])
        logprobs.append(float(torch.log_softmax(row, 0)[token]))
    return np.array(logprobs)


def assert_exact(model: Any, request: GenerationRequest, completion: Completion, tolerance: float = 1e-4) -> None:
    expected = plain_logprobs(model, request, completion)
    np.testing.assert_allclose(completion.logprobs, expected, rtol=0, atol=tolerance)
