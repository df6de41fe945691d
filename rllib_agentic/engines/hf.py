"""The in-process engine: a Hugging Face causal LM that serves whatever episodes are waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch

from rllib_agentic.engines.engine import Completion, GenerationRequest
from rllib_agentic.engines.generation import Generation
from rllib_agentic.engines.ragged_attention import Span, check_servable, ragged_logits
from rllib_agentic.engines.sampling import Draw, Drawn, draw
from rllib_agentic.engines.sequence_store import CachedSequence, SequenceStore
from rllib_agentic.engines.weight_gate import WeightGate
from rllib_agentic.errors import InfrastructureError, InputError, StaleWeightsError
from rllib_agentic.trajectory.turn import Ids

_MOST_LOOP_TURNS = 32


class _Job:
    """A request on its way through the engine."""

    __slots__ = ("answer", "cached_tokens", "episode_id", "generation", "pending", "sequence")

    def __init__(self, generation: Generation, answer: asyncio.Future[Completion]) -> None:
        self.generation = generation
        self.answer = answer
        self.episode_id = generation.request.episode_id
        self.sequence: CachedSequence | None = None
        self.pending: Ids = np.zeros(0, np.int32)
        self.cached_tokens = 0

    @property
    def full_ids(self) -> Ids:
        """Context and sampled ids."""
        return np.concatenate([self.generation.request.context_ids, np.array(self.generation.ids, np.int32)])


class _Row(NamedTuple):
    """What one job adds to a forward."""

    job: _Job
    sequence: CachedSequence
    past: int
    ids: Ids
    draw: Draw | None  # None while a prompt is longer than what fits one forward


class HFEngine:
    """Samples turns with a model in this process. See :class:`~rllib_agentic.engines.engine.Engine`.

    Requests that wait at the same moment share a forward: prompts that are read and tokens that are sampled go
    together, unpadded. The forward runs in one worker thread; everything else, and all state, belongs to the event
    loop. An episode's keys and values stay between its turns, so that only new tokens are read; a prompt that
    several episodes share is read once; tokens that the legal-token mask forces cost no forward.

    A batch of another shape rounds differently in the last bits, so "the same tokens alone and in a batch" holds up to
    ties at that level (about 1e-6 of the probability).

    Args:
        model: a causal LM whose attention goes through transformers' attention interface; used as it is, in eval mode.
        tokenizer: needed for stop strings only.
        policy_version: version of the weights that the model holds now.
        max_batch_tokens: most tokens a forward reads; longer prompts are read in pieces.
        max_cached_tokens: bound on cached tokens (buffers may be a quarter larger); idle episodes are forgotten, least
            recently used first, and requests wait until running ones leave room.

    Raises:
        InputError: the model's attention cannot be served exactly (checked by one small forward).
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any | None = None,
        *,
        policy_version: int = 0,
        max_batch_tokens: int = 2048,
        max_cached_tokens: int = 1 << 18,
    ) -> None:
        if max_batch_tokens < 1 or max_cached_tokens < 2:
            raise InputError(
                f"HFEngine: max_batch_tokens={max_batch_tokens} must be at least 1, "
                f"max_cached_tokens={max_cached_tokens} at least 2"
            )
        self._model = model
        self._tokenizer = tokenizer
        self._version = policy_version
        self._max_batch_tokens = max_batch_tokens
        self._device = model.get_input_embeddings().weight.device
        self._vocabulary = model.get_input_embeddings().weight.shape[0]
        self._store = SequenceStore(max_cached_tokens)
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or max_cached_tokens
        self._longest = min(positions, max_cached_tokens)
        self._waiting: dict[_Job, None] = {}
        self._running: dict[_Job, None] = {}
        self._arrived = 0
        self._driver: asyncio.Task[None] | None = None
        self._gate = WeightGate()
        self._counts = dict.fromkeys(("prefilled", "reused", "sampled", "forced", "forwards", "rows"), 0)
        threads = torch.get_num_threads()
        self._worker = ThreadPoolExecutor(
            1, thread_name_prefix="hf-engine", initializer=torch.set_num_threads, initargs=(threads,)
        )
        check_servable(model.eval())

    @property
    def policy_version(self) -> int:
        """Version of the weights that the next token would be sampled from."""
        return self._version

    async def generate(self, request: GenerationRequest) -> Completion:
        """Sample one turn. See :meth:`~rllib_agentic.engines.engine.Engine.generate`.

        Raises:
            InputError: the request cannot be served: a limit below 1, ids outside the vocabulary, longer than the
                model's positions or than ``max_cached_tokens``.
            StaleWeightsError: another policy version than the requested one is loaded, now or later in the turn.
            InfrastructureError: kind ``engine_nonfinite``: the model's logits for this turn were NaN or infinite.
        """
        self._check_version(request)
        self._check_size(request)
        job = _Job(Generation(request, self._tokenizer), asyncio.get_running_loop().create_future())
        self._waiting[job] = None
        self._arrived += 1
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        try:
            return await job.answer
        finally:
            self._forget(job)

    async def release(self, episode_id: str) -> None:
        """Free what is cached for an episode; a turn of it that still runs keeps nothing afterwards."""
        self._store.release(episode_id)
        for job in self._jobs():
            if job.episode_id == episode_id:
                job.episode_id = None

    def abort(self, episode_ids: Collection[str] | None = None) -> int:
        """End turns now; they answer with what they have and finish reason ``abort``.

        Args:
            episode_ids: whose turns; None for all that wait or run.

        Returns:
            How many turns were ended.
        """
        jobs = [j for j in self._jobs() if episode_ids is None or j.generation.request.episode_id in episode_ids]
        for job in jobs:
            self._finish(job)
        return len(jobs)

    def weights_updated(self, version: int) -> None:
        """Say that the model's weights were changed; call it right after, without a loop turn between.

        Every cache is dropped. Turns that run go on under the new weights, each token with its own version, unless
        their request asked for another version: those end with :class:`StaleWeightsError`.
        """
        self._version = version
        self._store.clear()
        self._waiting = dict.fromkeys(self._jobs())
        self._running = {}
        for job in list(self._waiting):
            job.sequence = None
            try:
                self._check_version(job.generation.request)
            except StaleWeightsError as error:
                self._fail(job, error)

    async def change_weights(self, version: int, load: Callable[[], None], *, finish_turns: bool = False) -> None:
        """Change the weights between two forwards, whatever runs.

        Args:
            version: of the new weights.
            load: writes them into the model; runs in the worker thread. What it raises comes out here, and the version
                stays.
            finish_turns: running turns end under the weights that they began with, while waiting ones wait. Otherwise
                running turns go on under the new weights from their next token on.
        """
        loop = asyncio.get_running_loop()

        async def load_between_forwards() -> None:
            await loop.run_in_executor(self._worker, load)
            self.weights_updated(version)

        working = self._driver is not None and not self._driver.done()
        await self._gate.change(load_between_forwards, finish_turns=finish_turns, working=working)

    def metrics(self) -> dict[str, float]:
        """What was done since the start, and how many tokens are cached (or reserved by running turns) now."""
        forwards = self._counts["forwards"]
        return {
            "prefilled_tokens": self._counts["prefilled"],
            "reused_tokens": self._counts["reused"],
            "sampled_tokens": self._counts["sampled"],
            "forced_tokens": self._counts["forced"],
            "forwards": forwards,
            "mean_batch_rows": self._counts["rows"] / forwards if forwards else 0.0,
            "evictions": self._store.evictions,
            "cached_tokens": self._store.cached_tokens,
        }

    def close(self) -> None:
        """End all turns, drop all caches, stop the worker thread."""
        self.abort()
        self._store.clear()
        self._worker.shutdown()

    def _check_version(self, request: GenerationRequest) -> None:
        if request.policy_version not in (None, self._version):
            raise StaleWeightsError(
                "stale_weights",
                f"HFEngine: the request asks for policy version {request.policy_version}, "
                f"but version {self._version} is loaded; sync the weights first",
            )

    def _check_size(self, request: GenerationRequest) -> None:
        ids = request.context_ids
        if not len(ids):
            return
        lowest, highest = int(ids.min()), int(ids.max())
        if lowest < 0 or highest >= self._vocabulary:
            raise InputError(
                f"HFEngine: context ids from {lowest} to {highest}, but the model knows 0 to {self._vocabulary - 1}; "
                "tokenizer and model do not belong together"
            )
        if len(ids) + request.max_tokens > self._longest:
            raise InputError(
                f"HFEngine: {len(ids)} context tokens and max_tokens={request.max_tokens} exceed {self._longest}, the "
                "smaller of the model's max_position_embeddings and max_cached_tokens; shorten the context or the turn"
            )

    def _jobs(self) -> list[_Job]:
        return [*self._running, *self._waiting]

    async def _drive(self) -> None:
        """Serve until no request is left."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting or self._running:
                if await self._gate.pass_by(running=bool(self._running)):
                    self._admit()
                rows = self._plan()
                if rows:
                    drawn = await loop.run_in_executor(self._worker, self._forward, rows)
                    self._apply(rows, drawn)
                await self._let_episodes_run()
        except Exception as error:
            for job in self._jobs():
                self._fail(job, error)
        finally:
            self._gate.leave()
            for job in self._jobs():
                self._fail(job, InfrastructureError("engine_stopped", "HFEngine: its event loop was stopped"))

    async def _let_episodes_run(self) -> None:
        """Let answered episodes go on and ask again, so that they are in the next forward."""
        quiet = 0
        for _ in range(_MOST_LOOP_TURNS):
            before = self._arrived
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._arrived == before else 0
            if quiet == 2:
                break

    def _admit(self) -> None:
        """Move waiting requests to the running ones, first come first served, as far as there is room."""
        for job in list(self._waiting):
            generation = job.generation
            self._counts["forced"] += generation.push_forced(self._version)
            if generation.finish_reason is not None:
                self._finish(job)
                continue
            reserve = len(generation.request.context_ids) + generation.request.max_tokens
            if not self._store.has_room(reserve):
                break
            full_ids = job.full_ids
            sequence = self._store.acquire(job.episode_id, full_ids, reserve)
            if sequence is None:
                continue
            job.sequence = sequence
            job.pending = full_ids[sequence.length :]
            job.cached_tokens = min(sequence.length, len(generation.request.context_ids))
            self._counts["reused"] += sequence.length
            del self._waiting[job]
            self._running[job] = None

    def _plan(self) -> list[_Row]:
        rows, room = [], self._max_batch_tokens
        for job in self._running:
            sequence, generation = job.sequence, job.generation
            assert sequence is not None
            ids = job.pending[:room]
            request = generation.request
            whole = len(ids) == len(job.pending)
            next_token = Draw(
                request.temperature,
                request.seed,
                len(generation.ids),
                request.top_p,
                request.top_k,
                generation.legal,
            )
            rows.append(_Row(job, sequence, sequence.length, ids, next_token if whole else None))
            room -= len(ids)
            if room == 0:
                break
        return rows

    @torch.inference_mode()
    def _forward(self, rows: list[_Row]) -> Drawn:
        """Runs in the worker thread; touches nothing but the model and the rows' keys and values."""
        spans, keep, end = [], [], 0
        for row in rows:
            start, end = end, end + len(row.ids)
            spans.append(Span(row.sequence.kv, start, end, row.past))
            if row.draw is not None:
                keep.append(end - 1)
        ids = np.concatenate([row.ids for row in rows])
        positions = np.concatenate([np.arange(row.past, row.past + len(row.ids)) for row in rows])
        if self._model.training:
            self._model.eval()
        logits_RV = ragged_logits(
            self._model,
            torch.from_numpy(ids).to(self._device, torch.int64),
            torch.from_numpy(positions).to(self._device),
            spans,
            torch.tensor(keep, dtype=torch.int64, device=self._device),
        )
        return draw(logits_RV, [row.draw for row in rows if row.draw is not None])

    def _apply(self, rows: list[_Row], drawn: Drawn) -> None:
        self._counts["forwards"] += 1
        self._counts["rows"] += len(rows)
        results = zip(drawn.ids.tolist(), drawn.logprobs.tolist(), strict=True)
        for row in rows:
            token, logprob = next(results) if row.draw is not None else (None, 0.0)
            job = row.job
            if job not in self._running:  # aborted, cancelled, or sent back to wait by new weights meanwhile
                continue
            row.sequence.extend(row.ids)
            job.pending = job.pending[len(row.ids) :]
            self._counts["prefilled"] += len(row.ids)
            if token is None:
                continue
            if logprob != logprob:
                self._fail(job, InfrastructureError("engine_nonfinite", _nonfinite(job, self._version)))
                continue
            generation = job.generation
            generation.push(token, logprob, self._version)
            forced = generation.push_forced(self._version)
            self._counts["sampled"] += 1
            self._counts["forced"] += forced
            if generation.finish_reason is not None:
                self._finish(job)
            else:
                job.pending = np.array(generation.ids[-1 - forced :], np.int32)

    def _finish(self, job: _Job) -> None:
        self._forget(job)
        if not job.answer.done():
            job.answer.set_result(job.generation.completion(job.cached_tokens))

    def _fail(self, job: _Job, error: Exception) -> None:
        job.episode_id = None  # what it cached is not to be trusted
        self._forget(job)
        if not job.answer.done():
            job.answer.set_exception(error)

    def _forget(self, job: _Job) -> None:
        self._waiting.pop(job, None)
        self._running.pop(job, None)
        if job.sequence is not None:
            self._store.put_back(job.episode_id, job.sequence)
            job.sequence = None


def _nonfinite(job: _Job, version: int) -> str:
    return (
        f"HFEngine: the logits for episode {job.generation.request.episode_id!r} at turn token "
        f"{len(job.generation.ids)} are not finite under policy version {version}; the weights have probably diverged"
    )
