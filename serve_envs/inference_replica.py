"""An engine in a Serve replica: turns in and out, and weights that follow the store."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from pydantic import ValidationError
from ray import serve
from ray.actor import ActorHandle

from rllib_agentic.engines.token_wire import TurnAnswer, TurnError, TurnPiece, TurnRequest
from rllib_agentic.engines.vllm import VLLMEngine
from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.rl_module.inference_folder import inference_folder
from rllib_agentic.rl_module.model_loading import load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings
from rllib_agentic.rl_module.weight_group import WeightsInterruptedError
from rllib_agentic.rl_module.weight_manifest import WeightManifest
from serve_envs.lease import Lease
from serve_envs.weight_store import Published

_log = logging.getLogger(__name__)
_LOOK_PERIOD_S = 1.0
_LEASE_PERIOD_S = 5.0
_MOST_TRIES = 3


class InferenceReplica:
    """One engine with the whole model.

    It loads what the store holds before it serves its first turn, and again whenever a turn asks for another version
    than it has, it is told to (:meth:`update`), or it finds out by itself: so a replica that was restarted, or that
    missed the call, cannot sample from old weights when new ones are asked for.

    Args:
        model: which model.
        args: of vLLM's ``AsyncEngineArgs``.
        store: the :class:`~serve_envs.weight_store.WeightStore` of the application.
        lease: the application is deleted when this is over.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, model: ModelSettings, args: Mapping[str, Any], store: ActorHandle, lease: Lease | None = None
    ) -> None:
        context = serve.get_replica_context()
        self._app, self._name = context.app_name, context.replica_tag
        self._store = store
        self._lease = lease
        self._loaded: str | None = None
        self._changing = asyncio.Lock()
        self._chores: list[asyncio.Task[None]] = []
        folder = await asyncio.to_thread(inference_folder, model)
        tokenizer = await asyncio.to_thread(load_tokenizer, model)
        alpha = None if model.lora is None else model.lora.alpha
        self._engine = VLLMEngine(folder, tokenizer, lora_alpha=alpha, **args)
        self._places = await self._engine.weight_places()
        await self._catch_up()

    async def turn(self, body: bytes) -> bytes:
        """A :class:`TurnRequest` in, a :class:`TurnAnswer` or :class:`TurnError` out, as JSON."""
        return await self._turn(body, None)

    async def watch(self, body: bytes) -> AsyncIterator[bytes]:
        """As :meth:`turn`, with a :class:`TurnPiece` before it whenever something was sampled."""
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        seen = 0

        def take(ids: list[int]) -> None:
            nonlocal seen
            pieces.put_nowait(TurnPiece(token_ids=ids[seen:]).model_dump_json().encode())
            seen = len(ids)

        turn = asyncio.ensure_future(self._turn(body, take))
        turn.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            yield await turn
        finally:
            turn.cancel()

    async def _turn(self, body: bytes, watch: Callable[[list[int]], None] | None) -> bytes:
        try:
            request = TurnRequest.model_validate_json(body).unpack()
            if self._engine.policy_version < 0 or request.policy_version not in (None, self._engine.policy_version):
                await self._catch_up()
            completion = await self._engine.generate(request, watch)
        except ValidationError as error:
            return _dumped(TurnError.of(InputError(f"not a turn: {error}")))
        except (InputError, InfrastructureError) as error:
            return _dumped(TurnError.of(error))
        return _dumped(TurnAnswer.of(request, completion))

    async def abort(self, episode_ids: list[str] | None) -> int:
        """End running turns; they answer with what they have. Returns how many."""
        return self._engine.abort(episode_ids)

    async def update(self) -> int:
        """Load the newest weights; returns the version that is loaded then.

        Raises:
            InputError: a tensor has no place in the model, or one is missing.
        """
        await self._catch_up()
        return self._engine.policy_version

    async def weight_places(self) -> tuple[str, list[list[str]]]:
        """This replica's name, and of each worker where and in which dtypes it holds weights."""
        return self._name, self._places

    async def sleep(self, level: int) -> None:
        """See :meth:`~rllib_agentic.engines.vllm.VLLMEngine.sleep`."""
        await self._engine.sleep(level)

    async def wake(self) -> None:
        """Take the memory again; after a deep sleep the weights too."""
        await self._engine.wake()
        await self._catch_up()

    async def status(self) -> dict[str, Any]:
        """Name, process, version, running turns and counters of this replica."""
        return {
            "replica": self._name,
            "pid": os.getpid(),
            "weight_version": self._engine.policy_version,
            "running_turns": self._engine.running_turns,
            **self._engine.metrics(),
        }

    async def check_health(self) -> None:
        """Called by Serve from time to time; a dead engine makes it start another replica."""
        if not self._engine.alive:
            raise RuntimeError("vLLM's process is dead")
        if not self._chores:
            self._chores.append(asyncio.create_task(self._look_for_weights()))
            if self._lease is not None:
                self._chores.append(asyncio.create_task(self._watch(self._lease)))

    async def _catch_up(self) -> None:
        async with self._changing:
            tries = 0
            while not self._engine.asleep and (published := await self._store.newest.remote()) is not None:
                if published.token == self._loaded and published.version == self._engine.policy_version:
                    return
                try:
                    if await self._load(published):
                        self._loaded = published.token
                except WeightsInterruptedError as error:
                    tries += 1
                    if tries == _MOST_TRIES:
                        raise
                    _log.warning("%s: %s", self._name, error)

    async def _load(self, published: Published) -> bool:
        """Load a version; gives False where a newer one has come instead."""
        version, finish_turns = published.version, published.finish_turns
        if published.lent is None:
            await self._engine.load_weights(version, await published.box[0], finish_turns=finish_turns)
            return True
        manifest = WeightManifest.from_plain(published.lent["manifest"])
        join = functools.partial(self._join, published.token, published.lent)
        return await self._engine.receive_weights(version, manifest, join, finish_turns=finish_turns)

    async def _join(self, token: str, lent: Mapping[str, Any]) -> dict[str, Any] | None:
        round_ = await self._store.join.remote(token, self._name, len(self._places))
        if round_ is None:
            return None
        return {
            "host": lent["host"],
            "port": lent["port"],
            "timeout_s": lent["timeout_s"],
            "number": round_.number,
            "group": round_.group,
            "size": round_.size,
            "first_rank": round_.first_rank[self._name],
        }

    async def _look_for_weights(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_PERIOD_S)
            try:
                await self._catch_up()
            except Exception:
                _log.warning("%s could not load the newest weights", self._name, exc_info=True)

    async def _watch(self, lease: Lease) -> None:
        while not await asyncio.to_thread(lease.is_over):
            await asyncio.sleep(_LEASE_PERIOD_S)
        _log.warning("the holder of %s is dead: the application stops", self._app)
        await asyncio.to_thread(serve.delete, self._app, _blocking=False)

    async def __del__(self) -> None:
        for chore in getattr(self, "_chores", ()):
            chore.cancel()
        if hasattr(self, "_engine"):
            self._engine.close()


def _dumped(answer: TurnAnswer | TurnError) -> bytes:
    return answer.model_dump_json().encode()
