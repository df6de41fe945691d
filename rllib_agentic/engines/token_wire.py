"""Turns on the wire between a rollout and an engine elsewhere: token ids both ways, the same over handles and HTTP."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rllib_agentic.engines.engine import Completion, GenerationRequest
from rllib_agentic.engines.legal_tokens import TokenTrie
from rllib_agentic.errors import InfrastructureError, InputError, StaleWeightsError
from rllib_agentic.trajectory.turn import FinishReason, LegalTokens


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TurnRequest(_Wire):
    """A :class:`~rllib_agentic.engines.engine.GenerationRequest` in JSON; ``weight_version`` is the one asked for."""

    prompt_token_ids: list[int]
    max_tokens: int
    temperature: float = 1.0
    seed: int = 0
    top_p: float = 1.0
    top_k: int = 0
    stop_token_ids: list[int] = Field(default_factory=list)
    stop: list[str] = Field(default_factory=list)
    legal: list[list[int]] | None = None
    episode_id: str | None = None
    weight_version: int | None = None

    @classmethod
    def of(cls, request: GenerationRequest) -> TurnRequest:
        """The request as it travels."""
        return cls(
            prompt_token_ids=request.context_ids.tolist(),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            top_p=request.top_p,
            top_k=request.top_k,
            stop_token_ids=sorted(request.stop_ids),
            stop=list(request.stop_strings),
            legal=None if request.legal is None else request.legal.sequences(),
            episode_id=request.episode_id,
            weight_version=request.policy_version,
        )

    def unpack(self) -> GenerationRequest:
        """The request as engines take it.

        Raises:
            InputError: a legal turn without ids.
        """
        return GenerationRequest(
            context_ids=np.array(self.prompt_token_ids, np.int32),
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            seed=self.seed,
            top_p=self.top_p,
            top_k=self.top_k,
            stop_ids=frozenset(self.stop_token_ids),
            stop_strings=tuple(self.stop),
            legal=None if self.legal is None else TokenTrie(self.legal),
            episode_id=self.episode_id,
            policy_version=self.weight_version,
        )


class TurnAnswer(_Wire):
    """What was sampled.

    Attributes:
        prompt_token_ids: what was read, as it came.
        token_ids, logprobs: as sampled; each logprob under the distribution that its token was sampled from.
        finish_reason: ``stop``, ``stop_string``, ``length`` or ``abort``.
        weight_version: of the weights that sampled the last token; None where nothing was sampled.
        weight_versions: one a token.
        cached_tokens: how many prompt tokens a cache held.
    """

    kind: Literal["turn"] = "turn"
    prompt_token_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason
    weight_version: int | None
    weight_versions: list[int]
    cached_tokens: int

    @classmethod
    def of(cls, request: GenerationRequest, completion: Completion) -> TurnAnswer:
        """The completion as it travels."""
        versions = completion.policy_versions.tolist()
        return cls(
            prompt_token_ids=request.context_ids.tolist(),
            token_ids=completion.ids.tolist(),
            logprobs=completion.logprobs.tolist(),
            finish_reason=completion.finish_reason,
            weight_version=versions[-1] if versions else None,
            weight_versions=versions,
            cached_tokens=completion.cached_tokens,
        )

    def unpack(self, request: GenerationRequest) -> Completion:
        """The completion of the request that this answers; the legal-token mask is made anew from the request."""
        return Completion(
            ids=np.array(self.token_ids, np.int32),
            logprobs=np.array(self.logprobs, np.float32),
            finish_reason=self.finish_reason,
            policy_versions=np.array(self.weight_versions, np.int32),
            legal_tokens=None if request.legal is None else _masks(request.legal, self.token_ids),
            cached_tokens=self.cached_tokens,
        )


class TurnPiece(_Wire):
    """What has been sampled since the last piece of a turn that is watched; a :class:`TurnAnswer` ends them."""

    kind: Literal["piece"] = "piece"
    token_ids: list[int]


class TurnError(_Wire):
    """Why there is no turn.

    Attributes:
        error: ``input`` (the request is wrong), ``stale_weights`` (another version is loaded), ``infrastructure``.
        code: the kind of an :class:`~rllib_agentic.errors.InfrastructureError`.
        message: for people.
    """

    kind: Literal["error"] = "error"
    error: Literal["input", "stale_weights", "infrastructure"]
    code: str
    message: str

    @classmethod
    def of(cls, error: InputError | InfrastructureError) -> TurnError:
        """The error as it travels."""
        if isinstance(error, InputError):
            return cls(error="input", code="input", message=str(error))
        stale = isinstance(error, StaleWeightsError)
        return cls(error="stale_weights" if stale else "infrastructure", code=error.kind, message=str(error))

    def unpack(self) -> InputError | InfrastructureError:
        """The error to raise."""
        if self.error == "input":
            return InputError(self.message)
        kind = StaleWeightsError if self.error == "stale_weights" else InfrastructureError
        return kind(self.code, self.message)


Answer = Annotated[TurnAnswer | TurnError, Field(discriminator="kind")]
WatchedAnswer = Annotated[TurnPiece | TurnAnswer | TurnError, Field(discriminator="kind")]


def _masks(trie: TokenTrie, ids: list[int]) -> LegalTokens:
    legal, node = [], trie.root
    for token in ids:
        legal.append(node.legal)
        node = node.children[token]
    offsets = np.zeros(len(legal) + 1, np.int32)
    np.cumsum([len(part) for part in legal], out=offsets[1:])
    return LegalTokens(offsets, np.concatenate([*legal, np.zeros(0, np.int32)]).astype(np.int32))
