"""What vLLM is started with, and what it is told of each turn."""

from __future__ import annotations

import os
from typing import Any

import torch

from rllib_agentic.engines.engine import GenerationRequest
from rllib_agentic.errors import InputError

_MASKS = [f"rllib_agentic.engines.vllm_masks:{name}" for name in ("LegalTokenMask", "TruncateDistribution")]


def engine_args(folder: str, **args: Any) -> dict[str, Any]:
    """Engine arguments for vLLM: the caller's, and those that training depends on.

    Args:
        folder: config and tokenizer of the model, and its weights unless ``load_format`` is ``dummy``.
        args: keyword arguments of vLLM's ``AsyncEngineArgs``.

    Raises:
        InputError: one of the arguments that are fixed here was given.
    """
    fixed = {
        "model": folder,
        "logprobs_mode": "processed_logprobs",  # of the distribution that was sampled from: masked, at the temperature
        "logits_processors": _MASKS,
        "worker_extension_cls": "rllib_agentic.engines.vllm_worker.WeightReceiver",
        "generation_config": "vllm",  # no sampling defaults of the model's own
        "enable_prefix_caching": True,
    }
    if taken := sorted(fixed.keys() & args.keys()):
        raise InputError(f"engine.engine_args: {', '.join(taken)} cannot be changed")
    defaults: dict[str, Any] = {"async_scheduling": False, "disable_log_stats": True}
    if not torch.cuda.is_available():  # its blocks of 128 tokens are seldom full; compiling takes minutes
        defaults |= {"block_size": 32, "enforce_eager": True}
    return {**defaults, **args, **fixed}


def prepare_process() -> None:
    """Set what vLLM reads from the environment, unless the user did."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if not torch.cuda.is_available():
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the worker lives in the engine's process


def sampling_parameters(request: GenerationRequest, taken: list[int], *, at_once: bool = True) -> Any:
    """A turn as vLLM's ``SamplingParams``.

    Args:
        request: the turn.
        taken: tokens that the legal-token mask forces at its beginning; they are part of the prompt.
        at_once: whether it answers at the turn's end only, or after each forward with all tokens so far.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    from rllib_agentic.engines.vllm_masks import LEGAL, TAKEN, TRUNCATE

    extra: dict[str, Any] = {}
    stop_ids = set(request.stop_ids)
    if request.legal is not None:
        sequences = request.legal.sequences()
        extra |= {LEGAL: sequences, TAKEN: taken}
        inner = {token for sequence in sequences for token in sequence[:-1]}
        stop_ids |= {sequence[-1] for sequence in sequences} - inner
    if request.temperature > 0 and (request.top_p < 1 or request.top_k > 0):
        extra[TRUNCATE] = (request.top_p, request.top_k)
    return SamplingParams(
        max_tokens=request.max_tokens - len(taken),
        temperature=request.temperature,
        seed=request.seed,
        stop=list(request.stop_strings),
        include_stop_str_in_output=True,
        stop_token_ids=sorted(stop_ids),
        ignore_eos=True,
        logprobs=0,
        detokenize=bool(request.stop_strings),
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        output_kind=RequestOutputKind.FINAL_ONLY if at_once else RequestOutputKind.CUMULATIVE,
        extra_args=extra or None,
    )
