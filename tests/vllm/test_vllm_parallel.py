"""A broadcast to the two tensor-parallel workers of one engine: each takes every tensor, and keeps its part."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tiny_engine import plain_logprobs

pytest.importorskip("vllm.sampling_params", reason="make test-vllm runs these")

from rllib_agentic.engines.engine import GenerationRequest
from rllib_agentic.engines.vllm import VLLMEngine
from rllib_agentic.rl_module.inference_folder import inference_folder
from rllib_agentic.rl_module.model_loading import ModelSettings, load_model, load_tokenizer
from rllib_agentic.rl_module.weight_group import WeightGroup
from rllib_agentic.rl_module.weight_manifest import WeightManifest
from rllib_agentic.rl_module.weights import named_weights

CPU = torch.device("cpu")
WORKERS = 2
TOLERANCE = 5e-4


def test_every_worker_gets_every_tensor_and_keeps_its_part() -> None:
    settings = ModelSettings(preset="tiny", hidden_size=128, num_heads=4, num_layers=2, max_positions=512)
    model = load_model(settings, seed=1)
    asyncio.run(asyncio.wait_for(play(settings, model), 600))


async def play(settings: ModelSettings, model: Any) -> None:
    engine = VLLMEngine(
        inference_folder(settings),
        load_tokenizer(settings),
        dtype="float32",
        kv_cache_memory_bytes=32 << 20,
        max_model_len=512,
        max_num_seqs=8,
        load_format="dummy",
        seed=0,
        tensor_parallel_size=WORKERS,
        distributed_executor_backend="mp",
    )
    try:
        assert await engine.weight_places() == [["cpu", "cpu", "float32"]] * WORKERS
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        group = WeightGroup(store, "group", 0, 1 + WORKERS, CPU, 60.0)
        for version in range(2):
            generator = torch.Generator().manual_seed(version)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(1 + 0.1 * torch.randn(parameter.shape, generator=generator))
            weights = {f"model.{name}": tensor for name, tensor in named_weights(model).items()}
            await broadcast(engine, group, store.port, version, weights)
            ids = np.random.default_rng(0).integers(3, 200, 40).astype(np.int32)
            request = GenerationRequest(ids, 12, seed=version)
            answer = await engine.generate(request)
            assert set(answer.policy_versions.tolist()) == {version}
            assert np.abs(plain_logprobs(model, request, answer) - answer.logprobs).max() < TOLERANCE
    finally:
        engine.close()


async def broadcast(
    engine: VLLMEngine, group: WeightGroup, port: int, version: int, weights: dict[str, torch.Tensor]
) -> None:
    manifest = WeightManifest.of(weights, None, bucket_bytes=1 << 16)

    def send() -> None:
        group.meet(version)
        manifest.send(group, weights, CPU)

    async def join() -> dict[str, Any]:
        return {
            "host": "127.0.0.1", "port": port, "group": "group", "size": 1 + WORKERS, "first_rank": 1,
            "number": version, "timeout_s": 60.0,
        }  # fmt: skip

    sender = threading.Thread(target=send)
    sender.start()
    assert await engine.receive_weights(version, manifest, join)
    sender.join()
