"""Engines elsewhere: turns on the wire, faults on the way, weights under their checkpoint names.

1. What comes back is what the engine gave: the wire changes neither ids, logprobs, versions nor masks.
2. A lost answer is asked for again; an error of the engine comes out as the same error.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from tiny_engine import random_ids, tiny_model

from rllib_agentic.components import parse_settings
from rllib_agentic.engines import remote
from rllib_agentic.engines.engine import GenerationRequest
from rllib_agentic.engines.hf import HFEngine
from rllib_agentic.engines.legal_tokens import TokenTrie
from rllib_agentic.engines.remote import RemoteEngine
from rllib_agentic.engines.settings import ENGINES
from rllib_agentic.engines.token_wire import TurnAnswer, TurnError, TurnRequest
from rllib_agentic.engines.vllm_settings import VLLMEngineSettings
from rllib_agentic.errors import InfrastructureError, InputError, StaleWeightsError
from rllib_agentic.rl_module.weight_checks import checkpoint_names, sample_checksums, tensor_checksum
from rllib_agentic.trajectory import FinishReason

MODEL = tiny_model()
TRIE = TokenTrie([[5, 6, 7, 2], [5, 8, 2], [9, 2]])


class Wire:
    """Answers with a real engine behind the wire, after so many lost answers."""

    def __init__(self, lost: int = 0, engine_lost: int = 0) -> None:
        self.engine = HFEngine(MODEL, policy_version=3)
        self.lost, self.engine_lost = lost, engine_lost
        self.asked: list[str | None] = []
        self.aborted: list[Any] = []

    async def turn(self, body: bytes, episode_id: str | None) -> bytes:
        self.asked.append(episode_id)
        if self.lost:
            self.lost -= 1
            raise ConnectionError("the replica died")
        if self.engine_lost:
            self.engine_lost -= 1
            return TurnError(error="infrastructure", code="engine_lost", message="dead").model_dump_json().encode()
        try:
            request = TurnRequest.model_validate_json(body).unpack()
            answer: TurnAnswer | TurnError = TurnAnswer.of(request, await self.engine.generate(request))
        except (InputError, InfrastructureError) as error:
            answer = TurnError.of(error)
        return answer.model_dump_json().encode()

    async def abort(self, episode_ids: list[str] | None) -> None:
        self.aborted.append(episode_ids)
        self.engine.abort(episode_ids)

    async def aclose(self) -> None:
        self.engine.close()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_PAUSE_S", 0.0)


def run(engine: RemoteEngine, request: GenerationRequest) -> Any:
    return asyncio.run(engine.generate(request))


@pytest.mark.parametrize(
    "fields",
    [
        {"seed": 2**62 + 1, "temperature": 0.7, "top_k": 5},
        {"legal": TRIE, "seed": 4, "stop_ids": frozenset({2})},
        {"temperature": 0.0, "stop_ids": frozenset(range(3, 30)), "policy_version": 3},
    ],
)
def test_the_wire_changes_nothing(fields: dict[str, Any]) -> None:
    request = GenerationRequest(random_ids(12), 9, episode_id="e", **fields)
    there = run(RemoteEngine(Wire()), request)
    here = asyncio.run(HFEngine(MODEL, policy_version=3).generate(request))
    assert there.ids.tolist() == here.ids.tolist() and there.ids.dtype == here.ids.dtype
    assert there.logprobs.tolist() == here.logprobs.tolist() and there.logprobs.dtype == here.logprobs.dtype
    assert there.policy_versions.tolist() == here.policy_versions.tolist()
    assert there.finish_reason is here.finish_reason
    if here.legal_tokens is None:
        assert there.legal_tokens is None
    else:
        assert there.legal_tokens.offsets.tolist() == here.legal_tokens.offsets.tolist()
        assert there.legal_tokens.ids.tolist() == here.legal_tokens.ids.tolist()


def test_lost_answers_are_asked_for_again_and_at_last_given_up() -> None:
    engine = RemoteEngine(wire := Wire(lost=2, engine_lost=1))
    answer = run(engine, GenerationRequest(random_ids(5), 4, episode_id="e"))
    assert len(answer.ids) == 4 and engine.retries == 3 and wire.asked == ["e"] * 4
    assert engine.metrics()["sampled_tokens"] == 4 and engine.metrics()["prefilled_tokens"] == 5
    with pytest.raises(InfrastructureError, match=r"the replica died \(4 tries\)") as failure:
        run(RemoteEngine(Wire(lost=99)), GenerationRequest(random_ids(5), 4))
    assert failure.value.kind == "engine_unreachable"


def test_errors_cross_the_wire_as_themselves() -> None:
    with pytest.raises(StaleWeightsError, match="policy version 9, but version 3") as stale:
        run(RemoteEngine(Wire()), GenerationRequest(random_ids(5), 4, policy_version=9))
    assert stale.value.kind == "stale_weights"
    with pytest.raises(InputError, match="max_tokens must be at least 1"):
        run(RemoteEngine(Wire()), GenerationRequest(random_ids(5), 0))

    class Babble(Wire):
        async def turn(self, body: bytes, episode_id: str | None) -> bytes:
            return b'{"kind": "turn"}'

    with pytest.raises(InfrastructureError, match="not an answer to a turn"):
        run(RemoteEngine(Babble()), GenerationRequest(random_ids(5), 4))


def test_turns_can_be_aborted_from_here() -> None:  # WS06
    async def play() -> tuple[int, list[Any], Wire]:
        engine = RemoteEngine(wire := Wire())
        tasks = [
            asyncio.create_task(engine.generate(GenerationRequest(random_ids(9), 300, seed=s, episode_id=f"{s}")))
            for s in range(3)
        ]
        while wire.engine.metrics()["forwards"] < 3:
            await asyncio.sleep(0)
        ended = engine.abort({"0", "2", "unknown"})
        answers = await asyncio.gather(tasks[0], tasks[2])
        assert engine.abort() == 1
        return ended, [*answers, await tasks[1]], wire

    ended, answers, wire = asyncio.run(play())
    assert ended == 2 and [sorted(a) if a else a for a in wire.aborted] == [["0", "2"], None]
    assert all(a.finish_reason is FinishReason.ABORT and len(a.ids) > 0 for a in answers)


def test_weights_travel_under_checkpoint_names_and_with_checksums() -> None:  # WS04
    arrays = {"model.model.embed.weight": np.ones((4, 2), np.float32), "model.lm_head.weight": np.ones(2, np.float32)}
    assert set(checkpoint_names(arrays)) == {"model.embed.weight", "lm_head.weight"}
    with pytest.raises(InputError, match="no place in a checkpoint for value_head"):
        checkpoint_names({**arrays, "value_head.weight": np.ones(1, np.float32)})
    tensors = {f"layer.{i:02}": torch.randn(3, 2, generator=torch.Generator().manual_seed(i)) for i in range(40)}
    sums = sample_checksums(tensors)
    assert len(sums) == 12 and sums == sample_checksums(dict(reversed(tensors.items())))
    changed = {name: tensor + (name in sums) * 1e-7 for name, tensor in tensors.items()}
    assert all(tensor_checksum(changed[name]) != checksum for name, checksum in sums.items())
    half = torch.ones(3, dtype=torch.bfloat16)
    assert tensor_checksum(half) == tensor_checksum(half.clone()) != tensor_checksum(half.float())


def test_settings_of_the_engine() -> None:
    settings = ENGINES.parse({"type": "vllm", "num_replicas": 2, "kv_cache_gb": 0.5, "engine_args": {"block_size": 16}})
    assert isinstance(settings, VLLMEngineSettings) and not settings.in_runner
    args = settings.vllm_args(model_dtype="float32", max_context_tokens=700, seed=2**40)
    assert args["dtype"] == "float32" and args["max_model_len"] == 700 and args["kv_cache_memory_bytes"] == 500_000_000
    assert args["block_size"] == 16 and args["load_format"] == "dummy" and 0 <= args["seed"] < 2**31
    assert "distributed_executor_backend" not in args and "enable_lora" not in args
    wide = VLLMEngineSettings(tensor_parallel_size=4, sleep="all", dtype="bfloat16")
    args = wide.vllm_args(model_dtype="float32", max_context_tokens=700, seed=0, adapter_rank=12)
    assert args["distributed_executor_backend"] == "ray" and args["max_lora_rank"] == 16 and args["enable_sleep_mode"]
    assert args["dtype"] == "bfloat16" and args["load_format"] == "auto"
    with pytest.raises(InputError, match="ranks up to 512, got 600"):
        wide.vllm_args(model_dtype="float32", max_context_tokens=700, seed=0, adapter_rank=600)
    for wrong, message in (
        ({"engine_args": {"dtype": "float32"}}, "write engine.dtype instead"),
        ({"address": "x", "num_replicas": 2}, "num_replicas would have no effect"),
        ({"num_replica": 2}, "Did you mean 'num_replicas'"),
    ):
        with pytest.raises(InputError, match=message):
            parse_settings(VLLMEngineSettings, wrong, "config.engine")


def test_a_url_takes_no_broadcast() -> None:
    broadcast = {"type": "vllm", "weight_transport": "collective"}
    assert ENGINES.parse(broadcast | {"address": "vllm"}) == VLLMEngineSettings(
        address="vllm", weight_transport="collective"
    )
    with pytest.raises(InputError, match="weights are uploaded to a URL; collective needs the name of an application"):
        ENGINES.parse(broadcast | {"address": "http://10.0.0.7:8000/vllm"})
