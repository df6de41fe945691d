"""An engine elsewhere, as a runner sees it: turns go out, and come back; weights are none of its business."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from rllib_agentic.engines.engine import COUNTERS, Completion, GenerationRequest
from rllib_agentic.engines.token_wire import Answer, TurnAnswer, TurnError, TurnRequest
from rllib_agentic.errors import InfrastructureError

_ANSWERS: TypeAdapter[TurnAnswer | TurnError] = TypeAdapter(Answer)
_MAX_TRIES = 4
_PAUSE_S = 0.5


class TurnTransport(Protocol):
    """A way to the replicas of an engine."""

    async def turn(self, body: bytes, episode_id: str | None) -> bytes:
        """Send a :class:`~rllib_agentic.engines.token_wire.TurnRequest` to the replica of its episode.

        Raises:
            ConnectionError: no answer came; the same turn may be asked for again, of whichever replica is there then.
        """
        ...

    async def abort(self, episode_ids: list[str] | None) -> None:
        """End running turns of these episodes, or all of them."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class WatchedTurns(TurnTransport, Protocol):
    """A way on which turns can be watched."""

    def watch(self, body: bytes) -> AsyncIterator[bytes]:
        """As :meth:`turn`, with :class:`~rllib_agentic.engines.token_wire.TurnPiece` before the answer.

        Who stops listening ends the turn.
        """
        ...


class RemoteEngine:
    """Samples turns on replicas. See :class:`~rllib_agentic.engines.engine.Engine`.

    Every request holds the whole context, so a replica that dies costs a prefill on another one, and no episode.

    Args:
        transport: the way there.
    """

    def __init__(self, transport: TurnTransport) -> None:
        self._transport = transport
        self._version = -1
        self._running: dict[str | None, int] = {}
        self._background: set[asyncio.Future[None]] = set()
        self._counts: dict[str, float] = dict.fromkeys(COUNTERS, 0.0)
        self.retries = 0

    @property
    def policy_version(self) -> int:
        """The version that was announced last; replicas may be on their way to it."""
        return self._version

    async def generate(self, request: GenerationRequest) -> Completion:
        """Sample one turn. See :meth:`~rllib_agentic.engines.engine.TurnSampler.generate`.

        Raises:
            InfrastructureError: kind ``engine_unreachable``: no replica answered in several tries; ``engine_answer``:
                what answered speaks another protocol.
        """
        self._running[request.episode_id] = self._running.get(request.episode_id, 0) + 1
        try:
            answer = await self._answer(TurnRequest.of(request).model_dump_json().encode(), request.episode_id)
        finally:
            self._running[request.episode_id] -= 1
            if not self._running[request.episode_id]:
                del self._running[request.episode_id]
        if not isinstance(answer, TurnAnswer):
            raise answer.unpack()
        self._counts["sampled_tokens"] += len(answer.token_ids)
        self._counts["reused_tokens"] += answer.cached_tokens
        self._counts["prefilled_tokens"] += len(request.context_ids) - answer.cached_tokens
        return answer.unpack(request)

    async def release(self, episode_id: str) -> None:
        """Nothing: replicas forget what was used longest ago."""

    def abort(self, episode_ids: Collection[str] | None = None) -> int:
        """End turns now. See :meth:`~rllib_agentic.engines.engine.Engine.abort`."""
        chosen = [e for e in self._running if episode_ids is None or e in episode_ids]
        if chosen:
            named = None if episode_ids is None else [e for e in chosen if e is not None]
            call = asyncio.ensure_future(self._transport.abort(named))
            self._background.add(call)
            call.add_done_callback(self._background.discard)
        return sum(self._running[e] for e in chosen)

    def weights_updated(self, version: int) -> None:
        """Note the version that the replicas were told to load."""
        self._version = version

    async def change_weights(self, version: int, load: Callable[[], None], *, finish_turns: bool = False) -> None:
        """Note the version: the weights go to the replicas another way, and so do running turns."""
        self.weights_updated(version)

    def metrics(self) -> Mapping[str, float]:
        """See :meth:`~rllib_agentic.engines.engine.Engine.metrics`; forwards and evictions are not known here."""
        return dict(self._counts)

    def close(self) -> None:
        """Nothing; the transport is closed by :meth:`aclose`."""

    async def aclose(self) -> None:
        """Close connections."""
        await self._transport.aclose()

    async def _answer(self, body: bytes, episode_id: str | None) -> TurnAnswer | TurnError:
        failure: Exception | None = None
        for attempt in range(_MAX_TRIES):
            if failure is not None:
                self.retries += 1
                await asyncio.sleep(_PAUSE_S * 2 ** (attempt - 1) * random.uniform(0.8, 1.2))
            try:
                answer = _ANSWERS.validate_json(await self._transport.turn(body, episode_id))
            except ConnectionError as error:
                failure = error
                continue
            except ValidationError as error:
                raise InfrastructureError("engine_answer", f"engine vllm: not an answer to a turn: {error}") from error
            if isinstance(answer, TurnError) and answer.code == "engine_lost":
                failure = answer.unpack()  # that replica is about to be replaced
                continue
            return answer
        raise InfrastructureError("engine_unreachable", f"engine vllm: {failure} ({_MAX_TRIES} tries)") from failure
