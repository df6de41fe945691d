"""One turn in the making: what was sampled so far, what may come next, and when it is over."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rllib_agentic.engines.engine import Completion, GenerationRequest
from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.turn import FinishReason, Ids, LegalTokens


class Generation:
    """Collects a turn's tokens. Engines push tokens; this decides whether the turn is over, and why.

    Args:
        request: the turn to sample.
        tokenizer: decodes for stop strings; may be None where the request has none.

    Raises:
        InputError: the request cannot be served, whatever the engine.

    Attributes:
        ids: what was sampled so far, forced tokens included.
        finish_reason: None while the turn goes on.
    """

    def __init__(self, request: GenerationRequest, tokenizer: Any | None) -> None:
        _check(request, tokenizer)
        self.request = request
        self.ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._logprobs: list[float] = []
        self._versions: list[int] = []
        self._legal: list[Ids] = []
        self._node = None if request.legal is None else request.legal.root
        self._tokenizer = tokenizer
        # A stop string of n bytes spans at most n + 1 tokens; the margin keeps a character that is cut at the
        # window's start away from it.
        self._window = 8 + max((len(text.encode()) for text in request.stop_strings), default=0)

    @property
    def legal(self) -> Ids | None:
        """The legal next ids, or None for all."""
        return None if self._node is None else self._node.legal

    def push(self, token: int, logprob: float, version: int) -> None:
        """Take one sampled token."""
        if self._node is not None:
            self._legal.append(self._node.legal)
            self._node = self._node.children[token]
        self.ids.append(token)
        self._logprobs.append(logprob)
        self._versions.append(version)
        if token in self.request.stop_ids or (self._node is not None and not self._node.children):
            self.finish_reason = FinishReason.STOP
        elif self.request.stop_strings and self._reached_stop_string():
            self.finish_reason = FinishReason.STOP_STRING
        elif len(self.ids) >= self.request.max_tokens:
            self.finish_reason = FinishReason.LENGTH

    def push_forced(self, version: int) -> int:
        """Take all tokens that the legal-token mask leaves no choice about; their logprob is 0 exactly.

        Returns:
            How many tokens were taken.
        """
        before = len(self.ids)
        while self.finish_reason is None and self._node is not None and self._node.forced is not None:
            self.push(self._node.forced, 0.0, version)
        return len(self.ids) - before

    def completion(self, cached_tokens: int) -> Completion:
        """What was sampled; an unfinished turn counts as aborted."""
        legal = None
        if self.request.legal is not None:
            offsets = np.zeros(len(self._legal) + 1, np.int32)
            np.cumsum([len(ids) for ids in self._legal], out=offsets[1:])
            legal = LegalTokens(offsets, np.concatenate([*self._legal, np.zeros(0, np.int32)]))
        return Completion(
            ids=np.array(self.ids, np.int32),
            logprobs=np.array(self._logprobs, np.float32),
            finish_reason=self.finish_reason or FinishReason.ABORT,
            policy_versions=np.array(self._versions, np.int32),
            legal_tokens=legal,
            cached_tokens=cached_tokens,
        )

    def _reached_stop_string(self) -> bool:
        assert self._tokenizer is not None
        text = self._tokenizer.decode(
            self.ids[-self._window :], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return any(stop in text for stop in self.request.stop_strings)


def _check(request: GenerationRequest, tokenizer: Any | None) -> None:
    faults = []
    if request.max_tokens < 1:
        faults.append(f"max_tokens must be at least 1, got {request.max_tokens}; clamp it before the call")
    if len(request.context_ids) == 0:
        faults.append("context_ids is empty; render a prompt first")
    temperature = request.temperature
    if not (temperature == 0 or (math.isfinite(temperature) and temperature >= 1e-3)):
        faults.append(f"temperature must be 0 (greedy) or at least 0.001, got {temperature}")
    if not 0 < request.top_p <= 1:
        faults.append(f"top_p must be above 0 and at most 1 (off), got {request.top_p}")
    if request.top_k < 0:
        faults.append(f"top_k must be 0 (off) or positive, got {request.top_k}")
    if "" in request.stop_strings:
        faults.append("a stop string is empty, so every turn would stop at once")
    if request.stop_strings and tokenizer is None:
        faults.append("stop strings need an engine with a tokenizer")
    if faults:
        raise InputError("GenerationRequest: " + "; ".join(faults))
