"""Engine ``vllm``: vLLM's asynchronous engine under the same contract as every other engine of ours."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from rllib_agentic.engines.engine import COUNTERS, Completion, GenerationRequest
from rllib_agentic.engines.generation import Generation
from rllib_agentic.engines.vllm_adapter import is_adapter_alone, write_adapter
from rllib_agentic.engines.vllm_arguments import engine_args, prepare_process, sampling_parameters
from rllib_agentic.errors import InfrastructureError, InputError, StaleWeightsError
from rllib_agentic.rl_module.weight_checks import Weights, checkpoint_names, sample_checksums
from rllib_agentic.rl_module.weight_group import WeightsInterruptedError
from rllib_agentic.rl_module.weight_manifest import WeightManifest
from rllib_agentic.rl_module.weights import to_tensor
from rllib_agentic.trajectory.turn import FinishReason

logger = logging.getLogger(__name__)

Watch = Callable[[list[int]], None]
Join = Callable[[], Awaitable[Mapping[str, Any] | None]]
UNKNOWN_VERSION = -1
_SHARED_MEMORY = Path("/dev/shm")


class VLLMEngine:
    """Samples turns with vLLM. See :class:`~rllib_agentic.engines.engine.Engine`.

    The model runs in a process of vLLM's. Everything here belongs to one event loop, the one it was made in.

    Args:
        folder: config and tokenizer of the model.
        tokenizer: needed for stop strings only.
        policy_version: of the weights in the folder; :data:`UNKNOWN_VERSION` refuses to sample before
            :meth:`load_weights`.
        lora_alpha: of adapters, where the learner sends those alone and the folder has the model below them.
        args: of vLLM's ``AsyncEngineArgs``.
    """

    def __init__(
        self,
        folder: str,
        tokenizer: Any | None = None,
        *,
        policy_version: int = UNKNOWN_VERSION,
        lora_alpha: float | None = None,
        **args: Any,
    ) -> None:
        prepare_process()
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._tokenizer = tokenizer
        self._version = policy_version
        self._asleep = self._broken = self._torn = False
        self._shapes: dict[str, torch.Size] | None = None
        self._llm: Any = AsyncLLM.from_engine_args(AsyncEngineArgs(**engine_args(folder, **args)))
        self._longest = int(self._llm.model_config.max_model_len)
        self._vocabulary = int(self._llm.model_config.get_vocab_size())
        self._labelled = False
        self._changing = asyncio.Lock()
        self._numbers = itertools.count()
        self._adapters = itertools.count(1)
        self._running: dict[str, GenerationRequest] = {}
        self._lora_alpha = lora_alpha
        self._adapter: tuple[int, Any] | None = None
        self._counts: dict[str, float] = dict.fromkeys(COUNTERS, 0.0)

    @property
    def policy_version(self) -> int:
        """Version of the weights that the next token would be sampled from; below 0 where there are none."""
        return self._version

    async def generate(self, request: GenerationRequest, watch: Watch | None = None) -> Completion:
        """Sample one turn. See :meth:`~rllib_agentic.engines.engine.TurnSampler.generate`.

        Args:
            request: the turn.
            watch: called after each forward with all ids that were sampled so far.

        Raises:
            InputError: the request cannot be served: ids outside the vocabulary, longer than the model's positions.
            StaleWeightsError: another policy version than the requested one is loaded, now or later in the turn, or
                none at all.
            InfrastructureError: kind ``engine_nonfinite``: logprobs were not finite; ``engine_lost``: vLLM died.
        """
        generation = Generation(request, self._tokenizer)
        self._check(request)
        await self._label()
        self._counts["forced_tokens"] += generation.push_forced(self._version)
        if generation.finish_reason is not None:
            return generation.completion(cached_tokens=0)
        adapter = self._adapter
        output, cached = await self._ask(request, list(generation.ids), adapter, watch)
        self._take(generation, output, adapter)
        self._counts["reused_tokens"] += cached
        self._counts["prefilled_tokens"] += len(request.context_ids) - cached
        completion = generation.completion(cached_tokens=cached)
        if not np.isfinite(completion.logprobs).all():
            raise InfrastructureError(
                "engine_nonfinite",
                f"VLLMEngine: logprobs for episode {request.episode_id!r} are not finite; the weights have diverged",
            )
        if request.policy_version is not None and (completion.policy_versions != request.policy_version).any():
            raise self._stale(request)
        return completion

    @property
    def alive(self) -> bool:
        """Whether vLLM's process still works, and holds weights that can be used or replaced."""
        return self._llm is not None and not (self._llm.errored or self._broken)

    @property
    def running_turns(self) -> int:
        """How many turns vLLM samples now, or holds back until it can."""
        return len(self._running)

    async def release(self, episode_id: str) -> None:
        """Nothing: vLLM forgets what was used longest ago."""

    def abort(self, episode_ids: Collection[str] | None = None) -> int:
        """End turns now. See :meth:`~rllib_agentic.engines.engine.Engine.abort`."""
        ended = [n for n, r in self._running.items() if episode_ids is None or r.episode_id in episode_ids]
        if ended:
            self._abortion = asyncio.ensure_future(self._llm.abort(ended))
        return len(ended)

    async def load_weights(self, version: int, weights: Weights, *, finish_turns: bool = False) -> None:
        """Put new weights in place while turns run: pause, update, reset the prefix cache and check it, resume.

        After the first update the names and shapes are known, and weights that differ are refused before anything is
        touched. An update that fails half way ends running turns and leaves an engine that samples nothing any more.

        Args:
            version: of the new weights.
            weights: all of the model's, as an RLModule names them; or those of its adapters alone, which are sampled
                with from the next turn on, while running turns end with theirs.
            finish_turns: running turns end under the weights that they began with. Otherwise they go on under the new
                ones from the next token on, their context read anew.

        Raises:
            InputError: a tensor has no place in the model, or one of the model's is missing.
            InfrastructureError: kind ``engine_update``: tensors came damaged, or the cache was not emptied.
        """
        tensors = {name: to_tensor(array) for name, array in checkpoint_names(weights).items()}
        if is_adapter_alone(tensors):
            await self._load_adapter(version, tensors)
            return

        async def receive() -> bool:
            await self._receive(tensors)
            return True

        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        await self._update(version, shapes, receive, finish_turns=finish_turns)

    async def weight_places(self) -> list[list[str]]:
        """Of each of vLLM's workers: kind and identity of its device, and the dtypes of its parameters."""
        return await self._llm.collective_rpc("weight_place")

    async def receive_weights(
        self, version: int, manifest: WeightManifest, join: Join, *, finish_turns: bool = False
    ) -> bool:
        """As :meth:`load_weights`, with whole weights that a learner broadcasts to vLLM's workers.

        Args:
            version: of the new weights.
            manifest: what will come.
            join: called when turns stand still; gives the round as
                :meth:`~rllib_agentic.engines.vllm_worker.WeightReceiver.receive_broadcast` takes it, or None.
            finish_turns: see :meth:`load_weights`.

        Returns:
            Whether they came: not where ``join`` gave None.

        Raises:
            InputError: as above.
            WeightsInterruptedError: the broadcast was cut off. Turns stand still until whole weights have come.
        """

        async def receive() -> bool:
            call = await join()
            if call is None:
                return False
            found = await self._on_workers("receive_broadcast", manifest.plain(), call)
            if cut := [reason for reason in found if isinstance(reason, str)]:
                raise WeightsInterruptedError(f"VLLMEngine: version {version} did not come whole: {cut[0]}")
            return True

        return await self._update(version, manifest.shapes, receive, finish_turns=finish_turns)

    async def sleep(self, level: int = 1) -> None:
        """Give the accelerator's memory back; running turns are ended.

        Args:
            level: 1 keeps the weights in the host's memory, 2 throws them away: nothing is sampled then before the
                next :meth:`load_weights`.
        """
        self._asleep = True
        await self._llm.sleep(level, mode="abort")
        if level >= 2:
            self._version = UNKNOWN_VERSION

    async def wake(self) -> None:
        """Take the memory again."""
        await self._llm.wake_up()
        self._asleep = False

    def metrics(self) -> Mapping[str, float]:
        """See :meth:`~rllib_agentic.engines.engine.Engine.metrics`; vLLM does not say how many forwards it ran."""
        return dict(self._counts)

    def close(self) -> None:
        """End all turns and vLLM's process."""
        if self._llm is not None:
            self._llm.shutdown()
            self._llm = None

    @property
    def asleep(self) -> bool:
        """Whether :meth:`wake` must come before anything else."""
        return self._asleep

    # --- inside -------------------------------------------------------------------------------------------------

    def _check(self, request: GenerationRequest) -> None:
        if self._asleep:
            raise StaleWeightsError("engine_asleep", "VLLMEngine: it sleeps; wake it first")
        if self._version < 0 or request.policy_version not in (None, self._version):
            raise self._stale(request)
        ids = request.context_ids
        if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= self._vocabulary):
            raise InputError(
                f"VLLMEngine: context ids from {ids.min()} to {ids.max()}, but the model knows 0 to "
                f"{self._vocabulary - 1}; tokenizer and model do not belong together"
            )
        if len(ids) + request.max_tokens > self._longest:
            raise InputError(
                f"VLLMEngine: {len(ids)} context tokens and max_tokens={request.max_tokens} exceed max_model_len "
                f"{self._longest}; shorten the context or the turn"
            )

    async def _update(
        self, version: int, shapes: dict[str, torch.Size], receive: Callable[[], Awaitable[bool]], *, finish_turns: bool
    ) -> bool:
        self._check_fit(shapes)
        async with self._changing:
            await self._llm.pause_generation(mode="wait" if finish_turns else "keep", clear_cache=False)
            held, self._version = self._version, UNKNOWN_VERSION
            came, usable = False, False
            try:
                came = await receive()
                if came:
                    if not await self._llm.reset_prefix_cache(reset_running_requests=True):
                        raise InfrastructureError("engine_update", "VLLMEngine: the prefix cache was not emptied")
                    await self._llm.update_weight_version(str(version))
                    self._labelled, self._adapter, self._shapes, held = True, None, shapes, version
                    self._torn = False
                usable = True
            except WeightsInterruptedError:
                self._torn = usable = True  # it can be mended by the next weights alone
                raise
            finally:
                if not usable:
                    self._broken = True
                    await self._llm.abort(list(self._running))
                if not usable or not self._torn:
                    self._version = held if usable else UNKNOWN_VERSION
                    await self._llm.resume_generation()
        return came

    def _check_fit(self, shapes: Mapping[str, torch.Size]) -> None:
        if self._broken:
            raise InputError("VLLMEngine: an update failed half way; start the engine again")
        known = self._shapes
        if known is None:
            return
        faults = {
            "missing": known.keys() - shapes.keys(),
            "without a place in the model": shapes.keys() - known.keys(),
            "of another shape": {n for n in known.keys() & shapes.keys() if known[n] != shapes[n]},
        }
        said = [f"{what}: {', '.join(sorted(names)[:5])}" for what, names in faults.items() if names]
        if said:
            raise InputError(f"VLLMEngine: weights that do not fit: {'; '.join(said)}. Nothing was loaded.")

    def _stale(self, request: GenerationRequest) -> StaleWeightsError:
        loaded = f"version {self._version} is loaded" if self._version >= 0 else "no weights are loaded"
        wanted = "any" if request.policy_version is None else request.policy_version
        return StaleWeightsError(
            "stale_weights", f"VLLMEngine: the request asks for policy version {wanted}, but {loaded}; sync first"
        )

    async def _label(self) -> None:
        """Tell vLLM the version of the weights it started with, so that every token is labelled."""
        if not self._labelled:
            self._labelled = True
            await self._llm.update_weight_version(str(self._version))

    async def _ask(
        self, request: GenerationRequest, taken: list[int], adapter: tuple[int, Any] | None, watch: Watch | None
    ) -> tuple[Any, int]:
        number = f"{request.episode_id or 'turn'}#{next(self._numbers)}"
        prompt = {"prompt_token_ids": [*request.context_ids.tolist(), *taken]}
        self._running[number] = request
        last = None
        lora = None if adapter is None else adapter[1]
        try:
            parameters = sampling_parameters(request, taken, at_once=watch is None)
            async for output in self._llm.generate(prompt, parameters, number, lora_request=lora):
                last = output
                if watch is not None:
                    watch([*taken, *output.outputs[0].token_ids])
        except ValueError as error:  # vLLM's validation
            raise InputError(f"VLLMEngine: vLLM refused the request: {error}") from error
        except _engine_errors() as error:
            raise InfrastructureError("engine_lost", f"VLLMEngine: vLLM failed: {error}") from error
        finally:
            del self._running[number]
        assert last is not None
        return last.outputs[0], min(last.num_cached_tokens or 0, len(request.context_ids))

    def _take(self, generation: Generation, output: Any, adapter: tuple[int, Any] | None) -> None:
        """Push what vLLM sampled, token by token, so that turns end by our rules."""
        versions = np.full(len(output.token_ids), self._version if adapter is None else adapter[0])
        for span in () if adapter is not None else output.weight_versions or ():
            versions[span.start : span.end] = int(span.version)
        for token, by_id, version in zip(output.token_ids, output.logprobs or (), versions.tolist(), strict=True):
            if generation.finish_reason is not None:
                break
            generation.push(int(token), min(0.0, float(by_id[token].logprob)), version)
            self._counts["sampled_tokens"] += 1
        if generation.finish_reason is None and output.finish_reason == "stop":
            generation.finish_reason = (
                FinishReason.STOP_STRING if isinstance(output.stop_reason, str) else FinishReason.STOP
            )

    async def _load_adapter(self, version: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Every version is an adapter of its own: vLLM reads a changed one never again, and keeps caches apart."""
        if self._lora_alpha is None:
            raise InputError("VLLMEngine: adapters came, but it was started without room for them (lora_alpha)")
        from vllm.lora.request import LoRARequest

        with tempfile.TemporaryDirectory(prefix="rllib_agentic-adapter-", dir=_shared_memory()) as folder:
            await asyncio.to_thread(write_adapter, tensors, self._lora_alpha, Path(folder))
            request = LoRARequest(lora_name=f"version-{version}", lora_int_id=next(self._adapters), lora_path=folder)
            async with self._changing:
                try:
                    await self._llm.add_lora(request)
                except _engine_errors() as error:
                    raise InfrastructureError("engine_lost", f"VLLMEngine: vLLM failed: {error}") from error
                except Exception as error:  # as above
                    raise InputError(f"VLLMEngine: the adapters were not loaded: {_first_line(error)}") from error
                self._adapter, self._version = (version, request), version

    async def _receive(self, tensors: dict[str, torch.Tensor]) -> None:
        """Hand the tensors to vLLM's workers through a file in shared memory; compare checksums on both sides."""
        expected = sample_checksums(tensors)
        handle, path = tempfile.mkstemp(prefix="rllib_agentic-weights-", suffix=".safetensors", dir=_shared_memory())
        os.close(handle)
        try:
            await asyncio.to_thread(save_file, tensors, path)
            compared = await self._on_workers("receive_weights", path, expected)
        finally:
            os.unlink(path)
        logger.debug("%s of %d sampled tensors compared, one figure a worker", compared, len(expected))

    async def _on_workers(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of :class:`~rllib_agentic.engines.vllm_worker.WeightReceiver` that loads weights."""
        try:
            return await self._llm.collective_rpc(method, args=arguments)
        except _engine_errors() as error:
            raise InfrastructureError("engine_lost", f"VLLMEngine: vLLM failed: {error}") from error
        except Exception as error:  # whatever vLLM's worker raised comes as a bare Exception
            raise InputError(f"VLLMEngine: the weights were not loaded: {_first_line(error)}") from error


def _shared_memory() -> Path | None:
    return _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None


def _engine_errors() -> tuple[type[Exception], ...]:
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    return EngineDeadError, EngineGenerateError


def _first_line(error: Exception) -> str:
    return str(error).removeprefix("Call to collective_rpc method failed: ").partition("\n")[0][:500]
