"""A deterministic engine for tests: it says what a script tells it, under the same rules as any engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from rllib_agentic.engines.engine import COUNTERS, Completion, GenerationRequest
from rllib_agentic.engines.generation import Generation
from rllib_agentic.errors import InputError, StaleWeightsError
from rllib_agentic.trajectory.turn import Ids

Answer = str | Sequence[int]


class ScriptedEngine:
    """Answers turns from a script, with limits, stops and legal tokens honoured.

    Args:
        script: the answers in the order of the calls, or a function from the context ids to an answer. A text is
            encoded and closed with ``stop_id``; ids are taken as they are.
        tokenizer: encodes texts, decodes for stop strings; may be None where neither is used.
        stop_id: closes texts; None leaves them open.
        logprob: what every token that had an alternative gets.
        policy_version: what the answers carry; assign to it, or call ``weights_updated``, to feign a weight update.

    Attributes:
        requests: every request so far, in order.
        released: the episode ids that were released, in order.

    Example:
        >>> import asyncio, numpy as np
        >>> engine = ScriptedEngine([[5, 6, 2]])
        >>> request = GenerationRequest(np.array([1], np.int32), max_tokens=8, stop_ids=frozenset({2}))
        >>> asyncio.run(engine.generate(request)).ids
        array([5, 6, 2], dtype=int32)
    """

    def __init__(
        self,
        script: Iterable[Answer] | Callable[[Ids], Answer],
        tokenizer: Any | None = None,
        *,
        stop_id: int | None = None,
        logprob: float = -0.5,
        policy_version: int = 0,
    ) -> None:
        self._answer = script if callable(script) else _in_order(script)
        self._tokenizer = tokenizer
        self._stop_id = stop_id
        self._logprob = logprob
        self.policy_version = policy_version
        self.requests: list[GenerationRequest] = []
        self.released: list[str] = []
        self._counts = dict.fromkeys(COUNTERS, 0.0)

    async def generate(self, request: GenerationRequest) -> Completion:
        """Say the script's next answer, cut where a stop or the limit ends it; one that just ends counts as aborted.

        Raises:
            InputError: a bad request, a script that ran out, or an answer that is not legal.
            StaleWeightsError: the request asks for another policy version.
        """
        self.requests.append(request)
        if request.policy_version not in (None, self.policy_version):
            raise StaleWeightsError(
                "stale_weights",
                f"ScriptedEngine: version {request.policy_version} was asked for, {self.policy_version} is loaded",
            )
        generation = Generation(request, self._tokenizer)
        for token in self._ids(self._answer(request.context_ids)):
            legal = generation.legal
            if legal is not None and token not in legal:
                raise InputError(
                    f"ScriptedEngine: the answer has id {token} after {generation.ids}, legal are {legal.tolist()}"
                )
            forced = legal is not None and len(legal) == 1
            generation.push(int(token), 0.0 if forced else self._logprob, self.policy_version)
            self._counts["forced_tokens" if forced else "sampled_tokens"] += 1
            if generation.finish_reason is not None:
                break
        return generation.completion(cached_tokens=0)

    async def release(self, episode_id: str) -> None:
        """Note it in ``released``."""
        self.released.append(episode_id)

    def abort(self, episode_ids: Collection[str] | None = None) -> int:
        """Nothing: an answer is there as soon as it is asked for."""
        return 0

    def weights_updated(self, version: int) -> None:
        """Answers carry this version from now on."""
        self.policy_version = version

    async def change_weights(self, version: int, load: Callable[[], None], *, finish_turns: bool = False) -> None:
        """Load, and answer under this version from now on; no turn ever runs."""
        load()
        self.weights_updated(version)

    def metrics(self) -> dict[str, float]:
        """How many tokens were said; nothing is read or cached here."""
        return dict(self._counts)

    def close(self) -> None:
        """Nothing to free."""

    def _ids(self, answer: Answer) -> list[int]:
        if not isinstance(answer, str):
            return list(answer)
        if self._tokenizer is None:
            raise InputError("ScriptedEngine: an answer is text, but there is no tokenizer; give one, or answer in ids")
        ids = self._tokenizer.encode(answer, add_special_tokens=False)
        return ids if self._stop_id is None else [*ids, self._stop_id]


def _in_order(script: Iterable[Answer]) -> Callable[[Ids], Answer]:
    answers = iter(script)

    def following(context_ids: Ids) -> Answer:
        try:
            return next(answers)
        except StopIteration:
            raise InputError("ScriptedEngine: the script has no answer left; give it one a turn") from None

    return following
