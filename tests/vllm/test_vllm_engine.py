"""Engine ``vllm`` on SmolLM2 in float32, against transformers and engine ``hf``.

1. Tokens and logprobs are those of the model: a forward without any cache gives the same logprobs to TOLERANCE (in
   nats, float32), greedy turns have the same ids as engine ``hf``.
2. New weights are seen by the next token, whatever was cached, and by nothing that was pinned to the old ones.
3. What cannot be loaded or served is refused, and nothing is sampled from half an update.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tiny_engine import plain_logprobs

pytest.importorskip("vllm.sampling_params", reason="make test-vllm runs these")

from rllib_agentic.engines.engine import Completion, GenerationRequest
from rllib_agentic.engines.hf import HFEngine
from rllib_agentic.engines.legal_tokens import ActionTries
from rllib_agentic.engines.sampling import truncate
from rllib_agentic.engines.vllm import VLLMEngine
from rllib_agentic.engines.vllm_adapter import adapter_args
from rllib_agentic.errors import InputError, StaleWeightsError
from rllib_agentic.rl_module.model_loading import ModelSettings, load_model, load_tokenizer
from rllib_agentic.rl_module.smollm2 import smollm2_folder
from rllib_agentic.rl_module.weight_group import WeightGroup, WeightsInterruptedError
from rllib_agentic.rl_module.weight_manifest import WeightManifest
from rllib_agentic.rl_module.weights import named_weights, read_weights
from rllib_agentic.trajectory import FinishReason

TOLERANCE = 5e-4
END = 2  # <|im_end|>


class Bench:
    """One vLLM for all tests of this module, on a loop of its own, beside the same model in transformers."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        settings = ModelSettings(preset="smollm2")
        self.tokenizer = load_tokenizer(settings)
        self.model = load_model(settings)
        self.version = 0
        self.original = {name: array.copy() for name, array in self.weights().items()}
        self.engine: VLLMEngine = self.run(self._start())

    async def _start(self) -> VLLMEngine:
        return VLLMEngine(
            str(smollm2_folder()),
            self.tokenizer,
            policy_version=0,
            dtype="float32",
            kv_cache_memory_bytes=128 << 20,
            max_model_len=512,
            max_num_seqs=16,
            seed=0,
            lora_alpha=16.0,
            **adapter_args(8),
        )

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def weights(self) -> dict[str, np.ndarray]:
        return {f"model.{name}": array for name, array in read_weights(self.model).items()}

    def load(self, **how: Any) -> None:
        """Bring the present weights of the model in transformers to vLLM."""
        self.version += 1
        self.run(self.engine.load_weights(self.version, self.weights(), **how))

    def all(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        async def gather() -> list[Completion]:
            return list(await asyncio.gather(*map(self.engine.generate, requests)))

        return self.run(gather())

    def one(self, context: np.ndarray, max_tokens: int = 8, **fields: Any) -> Completion:
        return self.all([GenerationRequest(context, max_tokens, **fields)])[0]

    def ids(self, text: str) -> np.ndarray:
        return np.array(self.tokenizer.encode(text, add_special_tokens=False), np.int32)

    def difference(self, request: GenerationRequest, completion: Completion) -> float:
        """The largest difference from a forward of transformers without a cache."""
        return float(np.abs(plain_logprobs(self.model, request, completion) - completion.logprobs).max())


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.engine.close()
    bench.loop.close()


@pytest.fixture
def restored(bench: Bench) -> Iterator[Bench]:
    """The bench, with the original weights on both sides afterwards."""
    yield bench
    with torch.no_grad():
        for name, parameter in bench.model.named_parameters():
            if f"model.{name}" in bench.original:
                parameter.copy_(torch.from_numpy(bench.original[f"model.{name}"]))
    bench.load()


def nudge(model: torch.nn.Module, scale: float = 0.02, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + scale * torch.randn(parameter.shape, generator=generator))


PROMPT = "<|im_start|>user\nName three colours and a fruit.<|im_end|>\n<|im_start|>assistant\n"


def test_greedy_turns_are_those_of_engine_hf(bench: Bench) -> None:
    requests = [
        GenerationRequest(bench.ids(PROMPT), 12, temperature=0.0, stop_ids=frozenset({END})),
        GenerationRequest(bench.ids("The capital of France is"), 6, temperature=0.0, stop_strings=("aris",)),
        GenerationRequest(bench.ids("one two three four"), 5, temperature=0.0),
    ]
    hf = HFEngine(bench.model, bench.tokenizer)

    async def gather() -> list[Completion]:
        return list(await asyncio.gather(*map(hf.generate, requests)))

    for request, ours, theirs in zip(requests, bench.all(requests), asyncio.run(gather()), strict=True):
        assert ours.ids.tolist() == theirs.ids.tolist()
        assert ours.finish_reason is theirs.finish_reason
        assert np.abs(ours.logprobs - theirs.logprobs).max() < TOLERANCE
        assert bench.difference(request, ours) < TOLERANCE
    hf.close()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_of_the_distribution_that_was_sampled_from(bench: Bench, temperature: float) -> None:
    requests = [GenerationRequest(bench.ids(PROMPT), 8, temperature=temperature, seed=s) for s in range(4)]
    for request, completion in zip(requests, bench.all(requests), strict=True):
        assert bench.difference(request, completion) < TOLERANCE
        assert completion.policy_versions.tolist() == [bench.version] * len(completion.ids)


def test_seeds_are_repeatable_alone_and_in_a_batch(bench: Bench) -> None:  # WS08
    requests = [GenerationRequest(bench.ids(PROMPT), 8, temperature=1.5, seed=70 + s) for s in range(8)]
    group = bench.all(requests)
    assert len({tuple(c.ids.tolist()) for c in group}) == 8
    assert bench.all([requests[3]])[0].ids.tolist() == group[3].ids.tolist()


def test_legal_tokens_bind_and_logprobs_are_under_the_mask(bench: Bench) -> None:
    trie = ActionTries(bench.tokenizer, END).trie(["go left", "go right", "look around", "take 12 apples"])
    requests = [GenerationRequest(bench.ids(PROMPT), 16, seed=s, temperature=1.3, legal=trie) for s in range(6)]
    legal = {tuple(sequence) for sequence in trie.sequences()}
    seen = set()
    for request, completion in zip(requests, bench.all(requests), strict=True):
        assert tuple(completion.ids.tolist()) in legal and completion.finish_reason is FinishReason.STOP
        assert bench.difference(request, completion) < TOLERANCE
        mask = completion.legal_tokens
        assert mask is not None
        assert all(completion.logprobs[i] == 0 for i in range(len(mask)) if len(mask.at(i)) == 1)
        seen.add(tuple(completion.ids.tolist()))
    assert len(seen) > 1
    only = ActionTries(bench.tokenizer, END).trie(["wait"])
    before = bench.engine.metrics()["sampled_tokens"]
    assert bench.one(bench.ids(PROMPT), 8, legal=only).logprobs.tolist() == [0.0, 0.0]
    assert bench.engine.metrics()["sampled_tokens"] == before  # forced turns cost no forward


def test_a_truncated_distribution_is_renormalised(bench: Bench) -> None:
    request = GenerationRequest(bench.ids(PROMPT), 6, seed=1, temperature=1.5, top_p=0.8, top_k=20)
    completion = bench.all([request])[0]
    ids = torch.from_numpy(np.concatenate([request.context_ids, completion.ids]).astype(np.int64))[None]
    with torch.no_grad():
        logits = bench.model(input_ids=ids).logits[0, len(request.context_ids) - 1 : -1] / 1.5
    expected = [
        float(truncate(torch.log_softmax(row, -1), 0.8, 20)[token])
        for row, token in zip(logits, completion.ids.tolist(), strict=True)
    ]
    np.testing.assert_allclose(completion.logprobs, expected, atol=TOLERANCE)


def test_turns_of_an_episode_reuse_what_was_read(bench: Bench) -> None:
    first = GenerationRequest(bench.ids(PROMPT * 3), 8, seed=1, episode_id="e")
    said = bench.all([first])[0]
    context = np.concatenate([first.context_ids, said.ids, bench.ids("\nAnd an animal?\n")])
    second = GenerationRequest(context, 8, seed=2, episode_id="e")
    answer = bench.all([second])[0]
    assert answer.cached_tokens >= len(first.context_ids) - 32
    assert bench.difference(second, answer) < TOLERANCE


def test_new_weights_are_seen_whatever_was_cached(restored: Bench) -> None:  # WS01
    bench = restored
    request = GenerationRequest(bench.ids(PROMPT * 16)[:256], 8, temperature=0.0)
    bench.all([request])
    nudge(bench.model)
    bench.load()
    fresh = bench.all([request])[0]
    assert fresh.cached_tokens == 0 and set(fresh.policy_versions.tolist()) == {bench.version}
    assert bench.difference(request, fresh) < TOLERANCE  # the tied output layer included

    nudge(bench.model, seed=1)
    weights = {name.removeprefix("model."): torch.from_numpy(a) for name, a in bench.weights().items()}
    bench.run(bench.engine._receive(weights))  # an update that leaves the cache as it is
    stale = bench.all([request])[0]
    assert stale.cached_tokens > 100 and bench.difference(request, stale) > 0.05
    assert bench.run(bench.engine._llm.reset_prefix_cache())


def sampled_so_far(engine: VLLMEngine) -> list[int]:
    """Tokens of each turn that vLLM samples; it hands them over at the turn's end only."""
    return [len(turn.detokenizer.output_token_ids) for turn in engine._llm.output_processor.request_states.values()]


class Sender:
    """A learner's side of broadcasts, in a thread; the engine's only worker is rank 1."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._group: Cut | None = None
        self.numbers = 0

    def load(self, weights: dict[str, torch.Tensor] | None = None, group: str = "one", buckets: int = 10**9) -> bool:
        """Broadcast weights, the model's unless others are given; after so many buckets the sender gives up."""
        if weights is None:
            weights = {f"model.{name}": tensor for name, tensor in named_weights(self._bench.model).items()}
        manifest = WeightManifest.of(weights, None, 32 << 20)
        self._bench.version += 1
        self.numbers += 1
        call = {
            "host": "127.0.0.1", "port": self._store.port, "group": group, "size": 2, "first_rank": 1,
            "number": self.numbers, "timeout_s": 60.0,
        }  # fmt: skip

        async def join() -> dict[str, Any]:
            return call

        async def receive() -> bool:
            sending = asyncio.get_running_loop().run_in_executor(None, self._send, manifest, weights, group, buckets)
            try:
                return await self._bench.engine.receive_weights(self._bench.version, manifest, join)
            finally:
                await sending

        return self._bench.run(receive())

    def _send(self, manifest: WeightManifest, weights: dict[str, torch.Tensor], group: str, buckets: int) -> None:
        if self._group is None or self._group.name != group:
            self._group = Cut(self._store, group, 0, 2, torch.device("cpu"), 60.0)
        self._group.buckets = buckets
        with suppress(WeightsInterruptedError):
            self._group.meet(self.numbers)
            manifest.send(self._group, weights, torch.device("cpu"))


class Cut(WeightGroup):
    """Gives up after so many broadcasts."""

    buckets = 0

    def broadcast(self, tensor: torch.Tensor) -> None:
        self.buckets -= 1
        if self.buckets < 0:
            self.give_up()
            raise WeightsInterruptedError("cut")
        super().broadcast(tensor)


def test_weights_that_are_broadcast_are_seen_like_others(restored: Bench) -> None:
    bench, sender = restored, Sender(restored)
    request = GenerationRequest(bench.ids(PROMPT), 8, temperature=0.0)
    before = bench.all([request])[0]
    for seed in range(2):  # the second one through the same group
        nudge(bench.model, seed=seed)
        assert sender.load()
        fresh = bench.all([request])[0]
        assert fresh.cached_tokens == 0 and set(fresh.policy_versions.tolist()) == {bench.version}
        assert bench.difference(request, fresh) < TOLERANCE < bench.difference(request, before)


def test_a_broadcast_that_is_cut_off_lets_nothing_be_sampled_and_the_next_one_mends_it(restored: Bench) -> None:
    bench, sender = restored, Sender(restored)
    old = load_model(ModelSettings(preset="smollm2"))
    bench.load()
    first = bench.version
    request = GenerationRequest(bench.ids("Once upon a time"), 40, seed=1)

    async def begin() -> asyncio.Task[Completion]:
        turn = asyncio.create_task(bench.engine.generate(request))
        while min(sampled_so_far(bench.engine), default=0) < 2:
            await asyncio.sleep(0.001)
        return turn

    turn = bench.run(begin())
    nudge(bench.model, seed=3)
    with pytest.raises(WeightsInterruptedError, match="did not come whole"):
        sender.load(buckets=4)
    assert bench.engine.alive and not turn.done()
    with pytest.raises(StaleWeightsError, match="no weights are loaded"):
        bench.one(bench.ids("one"))
    so_far = sampled_so_far(bench.engine)
    nudge(bench.model, seed=4)
    assert so_far == sampled_so_far(bench.engine)
    assert sender.load(group="two")
    answer = bench.run(turn)
    assert set(answer.policy_versions.tolist()) == {first, bench.version} and len(answer.ids) == 40
    before = answer.policy_versions == first
    expected = np.where(before, plain_logprobs(old, request, answer), plain_logprobs(bench.model, request, answer))
    np.testing.assert_allclose(answer.logprobs, expected, atol=TOLERANCE)


def test_a_broadcast_that_does_not_fit_is_refused_before_it_begins(restored: Bench) -> None:
    bench, sender = restored, Sender(restored)
    bench.load()
    strange = {f"model.{n}": t for n, t in named_weights(bench.model).items()} | {"model.visual.w": torch.zeros(3)}
    manifest = WeightManifest.of(strange, None)

    async def join() -> None:
        pytest.fail("a manifest that does not fit was joined for")

    with pytest.raises(InputError, match=r"without a place in the model: visual\.w"):
        bench.run(bench.engine.receive_weights(bench.version + 1, manifest, join))
    assert bench.engine.alive and sender.load()


def update_during(bench: Bench, requests: Sequence[GenerationRequest], then: Callable[[], Any]) -> list[Any]:
    """Start the requests, do something while all of them run, and give the answers."""

    async def run() -> list[Any]:
        tasks = [asyncio.create_task(bench.engine.generate(request)) for request in requests]
        started = bench.engine._counts["sampled_tokens"]
        while min(sampled_so_far(bench.engine), default=0) < 2 or bench.engine.running_turns < len(requests):
            await asyncio.sleep(0.001)
        assert bench.engine._counts["sampled_tokens"] == started  # none has ended
        found = then()
        if asyncio.iscoroutine(found):
            await found
        return await asyncio.gather(*tasks, return_exceptions=True)

    return bench.run(run())


def test_turns_that_run_go_on_under_new_weights(restored: Bench) -> None:  # WS05, WS07
    bench, old = restored, load_model(ModelSettings(preset="smollm2"))
    requests = [GenerationRequest(bench.ids("Once upon a time"), 40, seed=s) for s in range(15)]
    pinned = GenerationRequest(bench.ids("Once upon a time"), 40, seed=99, policy_version=bench.version)
    nudge(bench.model)
    bench.version += 1
    *answers, refused = update_during(
        bench, [*requests, pinned], lambda: bench.engine.load_weights(bench.version, bench.weights())
    )
    assert isinstance(refused, StaleWeightsError)
    assert all(a.finish_reason is FinishReason.LENGTH and len(a.ids) == 40 for a in answers)  # none was aborted
    for request, answer in list(zip(requests, answers, strict=True))[:3]:
        before = answer.policy_versions == bench.version - 1
        assert 0 < before.sum() < 40 and (np.diff(answer.policy_versions) >= 0).all()
        expected = np.where(before, plain_logprobs(old, request, answer), plain_logprobs(bench.model, request, answer))
        np.testing.assert_allclose(answer.logprobs, expected, atol=TOLERANCE)


def test_turns_may_finish_before_an_update(restored: Bench) -> None:
    bench = restored
    requests = [GenerationRequest(bench.ids("Once upon a time"), 30, seed=s) for s in range(2)]
    bench.version += 1
    load = bench.engine.load_weights(bench.version, bench.weights(), finish_turns=True)
    answers = update_during(bench, requests, lambda: load)
    assert [set(a.policy_versions.tolist()) for a in answers] == [{bench.version - 1}] * 2
    assert bench.one(bench.ids("Once"), 2).policy_versions.tolist() == [bench.version] * 2


def test_aborted_turns_keep_what_they_have(bench: Bench) -> None:  # WS06
    requests = [GenerationRequest(bench.ids("Once upon a time"), 60, seed=s, episode_id=f"{s}") for s in range(3)]
    ended = []
    answers = update_during(bench, requests, lambda: ended.append(bench.engine.abort({"0", "2", "unknown"})))
    assert ended == [2]
    assert [a.finish_reason for a in answers] == [FinishReason.ABORT, FinishReason.LENGTH, FinishReason.ABORT]
    for request, answer in zip(requests, answers, strict=True):
        assert len(answer.ids) > 0
        assert bench.difference(request, answer) < TOLERANCE


def test_nothing_is_sampled_between_deep_sleep_and_the_next_update(restored: Bench) -> None:  # WS03
    bench = restored
    bench.run(bench.engine.sleep(level=2))
    with pytest.raises(StaleWeightsError, match="it sleeps"):
        bench.one(bench.ids("one"))
    bench.run(bench.engine.wake())
    with pytest.raises(StaleWeightsError, match="no weights are loaded"):
        bench.one(bench.ids("one"))
    bench.load()
    assert bench.one(bench.ids("one"), 2, policy_version=bench.version).policy_versions.tolist() == [bench.version] * 2


def test_tensors_without_a_place_and_places_without_a_tensor_are_errors(restored: Bench) -> None:  # WS04
    bench, weights = restored, restored.weights()
    bench.load()  # from here on the names are known
    strange = np.zeros((3, 3), np.float32)
    name = "model.model.layers.7.mlp.down_proj.weight"
    for wrong, message in (
        ({**weights, "value_head.weight": strange}, "no place in a checkpoint for value_head"),
        ({**weights, "model.model.visual.w": strange}, r"without a place in the model: model\.visual\.w"),
        ({n: w for n, w in weights.items() if n != name}, r"missing: model\.layers\.7\.mlp\.down_proj\.weight"),
        ({**weights, name: strange}, r"of another shape: model\.layers\.7\.mlp\.down_proj\.weight"),
    ):
        with pytest.raises(InputError, match=message):
            bench.run(bench.engine.load_weights(bench.version + 1, wrong))
    assert bench.engine.policy_version == bench.version and bench.engine.alive  # refused before anything was touched
    request = GenerationRequest(bench.ids(PROMPT), 4)
    assert bench.difference(request, bench.all([request])[0]) < TOLERANCE


def test_adapters_are_sampled_with_under_their_own_version(restored: Bench) -> None:
    bench, rank, generator = restored, 8, torch.Generator().manual_seed(0)
    request = GenerationRequest(bench.ids(PROMPT * 3), 8, temperature=0.0)
    plain = bench.all([request])[0]
    adapters: dict[str, np.ndarray] = {}
    with torch.no_grad():
        for i, layer in enumerate(bench.model.model.layers):
            for part, name in ((layer.self_attn, "q_proj"), (layer.self_attn, "v_proj"), (layer.mlp, "down_proj")):
                weight = getattr(part, name).weight
                a = 0.05 * torch.randn(rank, weight.shape[1], generator=generator)
                b = 0.05 * torch.randn(weight.shape[0], rank, generator=generator)
                weight += 2.0 * b @ a  # alpha / rank
                place = f"model.model.layers.{i}.{'mlp' if part is layer.mlp else 'self_attn'}.{name}"
                adapters |= {f"{place}.lora_A.default.weight": a.numpy(), f"{place}.lora_B.default.weight": b.numpy()}
    bench.version += 1
    bench.run(bench.engine.load_weights(bench.version, adapters))
    adapted = bench.all([request])[0]
    assert adapted.policy_versions.tolist() == [bench.version] * 8 and adapted.cached_tokens == 0
    assert bench.difference(request, adapted) < TOLERANCE < bench.difference(request, plain)
    strange = {"model.model.layers.0.nothing.lora_A.default.weight": np.ones((8, 4), np.float32)}
    with pytest.raises(InputError, match="the adapters were not loaded"):
        bench.run(bench.engine.load_weights(bench.version + 1, strange))
    assert bench.engine.policy_version == bench.version


def test_requests_that_cannot_be_served_are_refused(bench: Bench) -> None:
    with pytest.raises(InputError, match=r"510 context tokens and max_tokens=8 exceed max_model_len 512"):
        bench.one(np.ones(510, np.int32))
    with pytest.raises(InputError, match="the model knows 0 to 49151"):
        bench.one(np.array([49152], np.int32))
    with pytest.raises(InputError, match="engine_args: logprobs_mode cannot be changed"):
        VLLMEngine("anywhere", logprobs_mode="raw_logprobs")


def test_an_update_that_fails_half_way_leaves_an_engine_that_says_so(bench: Bench) -> None:  # WS04; the last test
    known, bench.engine._shapes = bench.engine._shapes, None  # as before the first update
    less = {n: w for n, w in bench.weights().items() if not n.endswith("layers.7.mlp.down_proj.weight")}
    with pytest.raises(InputError, match=r"not sent: model\.layers\.7\.mlp\.down_proj"):
        bench.run(bench.engine.load_weights(bench.version + 1, less))
    assert known is not None and not bench.engine.alive
    with pytest.raises(StaleWeightsError, match="no weights are loaded"):
        bench.one(bench.ids("one"))
    with pytest.raises(InputError, match="start the engine again"):
        bench.run(bench.engine.load_weights(bench.version + 1, bench.weights()))
