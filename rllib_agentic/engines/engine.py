"""The engine: token ids in, token ids and logprobs out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rllib_agentic.trajectory.turn import FinishReason, Floats, Ids, LegalTokens

if TYPE_CHECKING:
    from rllib_agentic.engines.legal_tokens import TokenTrie

COUNTERS = ("prefilled_tokens", "reused_tokens", "sampled_tokens", "forced_tokens", "forwards", "evictions")
"""What every engine counts since its start."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One turn to sample.

    Attributes:
        context_ids: int32 ``[T]``, the whole visible context. An engine may keep a cache under ``episode_id`` and
            prefill only what is new; the result never depends on that.
        max_tokens: most tokens to sample, at least 1.
        temperature: divides the logits in sampling *and* in the returned logprobs; 0 means greedy (logprobs are
            then those of temperature 1, legal-token mask included).
        seed: the same request with the same seed gives the same tokens, alone or in a batch.
        top_p: nucleus, 1 = off. Only evaluation may truncate the distribution; logprobs are then of the truncated
            distribution.
        top_k: 0 = off.
        stop_ids: sampling one of these ends the turn; it is kept as the last id.
        stop_strings: the turn ends as soon as the decoded turn contains one; the last token is kept whole.
        legal: which token sequences are legal, or None for all.
        episode_id: key of the episode's KV cache; release it with :meth:`Engine.release`.
        policy_version: refuse to generate on any other version; None accepts whatever is loaded.
    """

    context_ids: Ids
    max_tokens: int
    temperature: float = 1.0
    seed: int = 0
    top_p: float = 1.0
    top_k: int = 0
    stop_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    legal: TokenTrie | None = None
    episode_id: str | None = None
    policy_version: int | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What was sampled. All arrays have the same length A.

    Attributes:
        ids: int32 ``[A]``, as sampled, a sampled stop id included.
        logprobs: float32 ``[A]``, under the distribution that each id was sampled from.
        finish_reason: why sampling ended.
        policy_versions: int32 ``[A]``.
        legal_tokens: the mask that was applied, position by position; None where the request had none.
        cached_tokens: how many context tokens were not prefilled because a cache held them.
    """

    ids: Ids
    logprobs: Floats
    finish_reason: FinishReason
    policy_versions: Ids
    legal_tokens: LegalTokens | None = None
    cached_tokens: int = 0


@runtime_checkable
class TurnSampler(Protocol):
    """Samples turns: all that an episode asks for."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """Sample one turn.

        Raises:
            StaleWeightsError: another policy version than the requested one is loaded.
            InfrastructureError: the engine failed; the episode is invalid, not lost.
        """
        ...

    async def release(self, episode_id: str) -> None:
        """Free what is cached for an episode. Unknown ids are fine."""
        ...


@runtime_checkable
class Engine(TurnSampler, Protocol):
    """Samples turns from weights that change. Many requests may be in flight; each is answered once it is done."""

    @property
    def policy_version(self) -> int:
        """Version of the weights that the next token would be sampled from."""
        ...

    def abort(self, episode_ids: Collection[str] | None = None) -> int:
        """End turns now (all of them, or those of some episodes); each answers with what it has and ``abort``.

        Returns:
            How many turns were ended.
        """
        ...

    def weights_updated(self, version: int) -> None:
        """Say that the weights are now those of ``version``: every cache is dropped.

        Turns that run go on, each token under its own version, unless their request asked for another one: those end
        with :class:`~rllib_agentic.errors.StaleWeightsError`.
        """
        ...

    async def change_weights(self, version: int, load: Callable[[], None], *, finish_turns: bool = False) -> None:
        """Change the weights while turns run.

        Args:
            version: of the new weights.
            load: puts them in place; what it raises comes out here, and the version stays.
            finish_turns: running turns end under the weights that they began with. Otherwise they go on as
                :meth:`weights_updated` says.
        """
        ...

    def metrics(self) -> Mapping[str, float]:
        """Numbers about the work so far. Those that only grow have the names in :data:`COUNTERS`, 0 included."""
        ...

    def close(self) -> None:
        """End all turns and free everything. Nothing may be asked afterwards."""
        ...
