"""VLLM on Ray Serve: two replicas of a tiny model, weights from a learner, faults, HTTP, and training through it.

1. A turn is sampled from the version that it asks for, whichever replica it meets and however that one came to be.
2. A replica that dies costs no episode, and serves nothing before it has the newest weights.
3. GRPO trains through the replicas as it does in process.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
import ray
import safetensors.torch
import torch
from tiny_engine import plain_logprobs

pytest.importorskip("vllm.sampling_params", reason="make test-vllm runs these")

import openai
from ray import serve

from rllib_agentic.algorithms.grpo import GRPOConfig
from rllib_agentic.algorithms.inference import Inference
from rllib_agentic.engines.engine import GenerationRequest
from rllib_agentic.engines.remote import RemoteEngine
from rllib_agentic.engines.vllm_transport import REPLICA_DEPLOYMENT, connect
from rllib_agentic.errors import InputError, StaleWeightsError
from rllib_agentic.rl_module.model_loading import ModelSettings, load_model
from rllib_agentic.rl_module.weight_checks import checkpoint_names
from rllib_agentic.rl_module.weights import read_weights, to_tensor
from serve_envs.weight_store import find_store

pytestmark = pytest.mark.ray
TOLERANCE = 5e-4
TINY: dict[str, Any] = {"preset": "tiny", "hidden_size": 128, "num_heads": 4, "num_layers": 2, "max_positions": 512}
RESOURCES = {"max_num_seqs": 16, "kv_cache_gb": 0.05, "cpus_per_replica": 0.5}


def config(engine: dict[str, Any], **changes: Any) -> GRPOConfig:
    small = {
        "env_config": {"backend": "local", "args": {"size": 4}},
        "model": TINY,
        "rollout": {"group_size": 4, "groups_per_iteration": 2, "max_turns": 3, "max_context_tokens": 512},
        "evaluation_duration": 4,
        "lr": 1e-2,
        "seed": 3,
    }
    return GRPOConfig().environment("frozenlake").update_from_dict(small | {"engine": engine}).update_from_dict(changes)


class Service:
    """Two replicas, and the model whose weights they get."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.model = load_model(ModelSettings(**TINY), seed=1)
        engine = {"type": "vllm", "num_replicas": 2, "http_port": self.port, **RESOURCES}
        self.inference = Inference(config(engine).sections())
        self.app = self.inference.address
        self.url = f"http://127.0.0.1:{self.port}/{self.app}"
        self.version = -1

    def weights(self) -> dict[str, np.ndarray]:
        return {f"model.{name}": array for name, array in read_weights(self.model).items()}

    def publish(self) -> None:
        self.version += 1
        self.inference.publish(self.version, self.weights(), finish_turns=False)

    def status(self) -> list[dict[str, Any]]:
        return httpx.get(f"{self.url}/v1/status", timeout=60).json()["replicas"]

    def turns(self, requests: list[GenerationRequest], address: str | None = None) -> list[Any]:
        async def gather() -> list[Any]:
            engine = connect(address or self.app)
            try:
                return list(await asyncio.gather(*map(engine.generate, requests), return_exceptions=True))
            finally:
                await engine.aclose()

        return asyncio.run(gather())

    def difference(self, request: GenerationRequest, completion: Any) -> float:
        return float(np.abs(plain_logprobs(self.model, request, completion) - completion.logprobs).max())


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    ray.init(num_cpus=2, object_store_memory=200 << 20, include_dashboard=False, log_to_driver=False)
    try:
        service = Service()
        yield service
        service.inference.stop()
    finally:
        serve.shutdown()
        ray.shutdown()


def request(length: int = 40, max_tokens: int = 8, **fields: Any) -> GenerationRequest:
    ids = np.random.default_rng(0).integers(3, 200, length).astype(np.int32)
    return GenerationRequest(ids, max_tokens, **fields)


def nudge(model: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 0.1 * torch.randn(parameter.shape, generator=generator))


def test_replicas_refuse_turns_before_the_first_weights_and_then_serve_them(service: Service) -> None:
    (refused,) = service.turns([request()])
    assert isinstance(refused, StaleWeightsError) and "no weights are loaded" in str(refused)
    service.publish()
    assert [replica["weight_version"] for replica in service.status()] == [0, 0]
    for seed, answer in enumerate(service.turns([request(seed=s, episode_id=f"{s}") for s in range(6)])):
        assert service.difference(request(seed=seed), answer) < TOLERANCE
        assert set(answer.policy_versions.tolist()) == {0}
    nudge(service.model, 0)
    service.publish()
    (answer,) = service.turns([request(policy_version=1)])
    assert service.difference(request(), answer) < TOLERANCE


def test_turns_of_an_episode_meet_their_cache(service: Service) -> None:
    first = request(200, episode_id="sticky")
    (said,) = service.turns([first])
    longer = np.concatenate([first.context_ids, said.ids, request(30).context_ids])
    (answer,) = service.turns([GenerationRequest(longer, 4, episode_id="sticky")])
    assert answer.cached_tokens >= 192


def test_the_http_face(service: Service) -> None:  # WS11
    wanted = {"prompt_token_ids": request().context_ids.tolist(), "max_tokens": 4, "seed": 5}
    turn = httpx.post(f"{service.url}/v1/turn", json=wanted, timeout=60)
    answer = turn.json()
    assert {"prompt_token_ids", "token_ids", "logprobs", "finish_reason", "weight_version"} <= set(answer)
    assert answer["weight_version"] == service.version and answer["prompt_token_ids"] == wanted["prompt_token_ids"]
    by_handle, by_url = (
        service.turns([request(max_tokens=4, seed=5)]),
        service.turns([request(max_tokens=4, seed=5)], service.url),
    )
    assert by_handle[0].ids.tolist() == by_url[0].ids.tolist() == answer["token_ids"]
    too_long = httpx.post(f"{service.url}/v1/turn", json=wanted | {"max_tokens": 4000}, timeout=60)
    assert too_long.status_code == 422 and "max_model_len 512" in too_long.text
    old = httpx.post(f"{service.url}/v1/turn", json=wanted | {"weight_version": 99}, timeout=60)
    assert old.status_code == 409

    models = httpx.get(f"{service.url}/v1/models", timeout=60).json()
    assert models["data"][0]["id"] == "tiny"
    chat = httpx.post(
        f"{service.url}/v1/chat/completions",
        json={"messages": [{"role": "user", "content": "go"}], "max_tokens": 4, "n": 2, "seed": 1, "logprobs": True},
        timeout=60,
    ).json()
    assert [c["message"]["role"] for c in chat["choices"]] == ["assistant"] * 2
    assert 0 < chat["usage"]["completion_tokens"] <= 8
    text = httpx.post(f"{service.url}/v1/completions", json={"prompt": "go left", "max_tokens": 3}, timeout=60).json()
    assert isinstance(text["choices"][0]["text"], str) and text["choices"][0]["finish_reason"] in ("stop", "length")

    stream_is_what_comes_at_once(service)
    nudge(service.model, 1)
    tensors = {name: to_tensor(array) for name, array in checkpoint_names(service.weights()).items()}
    service.version += 1
    url = f"{service.url}/v1/weights/{service.version}"
    assert httpx.put(url, content=b"nothing", timeout=60).status_code == 422
    assert httpx.put(url, content=safetensors.torch.save(tensors), timeout=120).json()["replicas"] == 2
    (answer,) = service.turns([request(policy_version=service.version)])
    assert service.difference(request(), answer) < TOLERANCE


def stream_is_what_comes_at_once(service: Service) -> None:
    """OpenAI's own client, streaming and not; seeds and weights are the same, so the text is."""
    client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0)
    said: dict[str, Any] = {"model": "tiny", "max_tokens": 24, "n": 2, "seed": 4, "stop": ["q"]}
    chat = {**said, "messages": [{"role": "user", "content": "go left"}]}
    whole = client.chat.completions.create(**chat)
    events = list(client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}))
    texts, reasons = ["", ""], [None, None]
    for choice in [choice for each in events for choice in each.choices]:
        assert reasons[choice.index] is None  # nothing comes after the end
        texts[choice.index] += choice.delta.content or ""
        reasons[choice.index] = choice.finish_reason
    assert texts == [choice.message.content for choice in whole.choices] and max(map(len, texts)) > 0
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert events[0].choices[0].delta.role == "assistant" and events[-1].usage == whole.usage
    assert len({each.id for each in events}) == 1 and len(events) > 6  # pieces, not one
    assert [e.weight_version for e in events if e.choices and e.choices[0].finish_reason] == [service.version] * 2

    plain = {**said, "prompt": "go left", "n": 1, "logprobs": 1}
    whole = client.completions.create(**plain)
    events = list(client.completions.create(**plain, stream=True))
    assert "".join(each.choices[0].text for each in events) == whole.choices[0].text
    assert events[-1].choices[0].logprobs == whole.choices[0].logprobs
    with pytest.raises(openai.UnprocessableEntityError, match="max_model_len 512"):
        client.completions.create(**plain | {"max_tokens": 4000}, stream=True)

    before = sum(replica["sampled_tokens"] for replica in service.status())
    endless = client.completions.create(**plain | {"max_tokens": 480, "stop": None}, stream=True)
    next(iter(endless))
    endless.close()
    deadline = time.monotonic() + 60
    while any(replica["running_turns"] for replica in service.status()) and time.monotonic() < deadline:
        time.sleep(0.1)
    found = service.status()  # a turn that nobody listens to was ended, and not sampled to its end
    assert sum(r["running_turns"] for r in found) == 0 and sum(r["sampled_tokens"] for r in found) == before


def test_weights_that_do_not_fit_stop_the_run(service: Service) -> None:  # WS04
    with pytest.raises(InputError, match=r"visual"):
        strange = {**service.weights(), "model.model.visual.w": np.zeros((2, 2), np.float32)}
        service.inference.publish(service.version + 1, strange, finish_turns=False)
    service.version += 1
    service.publish()
    assert service.difference(request(), service.turns([request()])[0]) < TOLERANCE


def test_another_run_with_the_same_number_of_a_version_brings_other_weights(service: Service) -> None:
    before = service.turns([request()])[0]
    nudge(service.model, 2)
    service.version -= 1
    service.publish()  # the number that is loaded already
    (after,) = service.turns([request(policy_version=service.version)])
    assert service.difference(request(), after) < TOLERANCE < service.difference(request(), before)


def test_a_killed_replica_costs_no_episode_and_its_successor_has_the_newest_weights(service: Service) -> None:
    killed = asyncio.Event()

    async def play(engine: RemoteEngine, number: int) -> list[tuple[GenerationRequest, Any]]:
        """Turn after turn, so that there is one at any time, until one has ended that began before the kill."""
        played: list[tuple[GenerationRequest, Any]] = []
        while not (played and killed.is_set()):
            wanted = request(max_tokens=200, seed=len(played), episode_id=f"long{number}")
            played.append((wanted, await engine.generate(wanted)))
        return played

    async def play_and_kill() -> tuple[list[Any], psutil.Process, list[psutil.Process]]:
        engine = connect(service.app)
        episodes = [asyncio.create_task(play(engine, number)) for number in range(6)]
        while not any((busy := replica)["running_turns"] for replica in await asyncio.to_thread(service.status)):
            assert not any(episode.done() for episode in episodes)
        victim = psutil.Process(busy["pid"])
        below = victim.children(recursive=True)
        victim.kill()
        killed.set()
        played = await asyncio.gather(*episodes)
        assert engine.retries > 0
        return played, victim, below

    played, victim, below = asyncio.run(play_and_kill())
    for wanted, answer in [last for episode in played for last in (episode[0], episode[-1])]:
        assert len(answer.ids) == 200 and service.difference(wanted, answer) < TOLERANCE
    wait_for_replicas(service, service.version, victim.pid)
    assert len(below) > 0 and not psutil.wait_procs(below, timeout=60)[1]  # vLLM's own process went too


def wait_for_replicas(service: Service, version: int, gone: int) -> None:
    """Until two replicas serve a version, and none of them is the process that is gone."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        found = service.status()
        if [r["weight_version"] for r in found] == [version] * 2 and gone not in [r["pid"] for r in found]:
            return
        time.sleep(0.5)
    raise AssertionError(found)


def test_broadcasts_reach_all_replicas_whatever_becomes_of_them(service: Service) -> None:
    engine = {"type": "vllm", "address": service.app, "weight_transport": "collective", "weight_timeout_s": 4.0}
    algo = config(engine, num_env_runners=0).build_algo()

    def check() -> None:
        model = algo.learner_group._learner.module["default_policy"].model
        asked = [request(seed=seed, episode_id=f"{seed}") for seed in range(8)]  # both replicas are asked
        for wanted, answer in zip(asked, service.turns(asked), strict=True):
            assert set(answer.policy_versions.tolist()) == {algo._dispatcher.policy_version}
            assert np.abs(plain_logprobs(model, wanted, answer) - answer.logprobs).max() < TOLERANCE

    def published() -> Any:
        return ray.get(find_store(service.app).newest.remote())

    try:
        for _ in range(2):
            mismatch = algo.train()["learners"]["default_policy"]["mismatch_max"]
            assert mismatch < TOLERANCE
            check()
        assert published().box == [] and published().version == algo._dispatcher.policy_version
        version = algo._dispatcher.policy_version

        # One that does not move any more when it is to take part, and is dead a while later: its successor comes late.
        silent = psutil.Process(service.status()[0]["pid"])
        for worker in silent.children(recursive=True):
            worker.suspend()

        def end() -> None:
            while service_version(service, silent.pid) != version + 1:
                time.sleep(0.2)
            for process in (silent, *silent.children(recursive=True)):
                process.kill()

        learner = algo.learner_group._learner
        nudge(learner.module["default_policy"].model, 5)
        learner.set_version(version + 1)
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(end)
            algo._publish_weights()
            ended.result()
        assert algo._dispatcher.policy_version == version + 1
        wait_for_replicas(service, version + 1, silent.pid)
        check()
        assert algo.train()["learners"]["default_policy"]["mismatch_max"] < TOLERANCE
        check()
    finally:
        algo.stop()
    service.version = algo._dispatcher.policy_version
    service.publish()  # through the object store again


def service_version(service: Service, but: int) -> int | None:
    """Version of the replica that is not that process."""
    handle = serve.get_deployment_handle(REPLICA_DEPLOYMENT, service.app)
    found = handle.broadcast("status").results(timeout_s=60, return_exceptions=True)
    return next((r["weight_version"] for r in found if isinstance(r, dict) and r["pid"] != but), None)


@pytest.mark.parametrize(
    ("max_staleness", "transport", "num_learners"), [(0, "object_store", 0), (1, "auto", 0), (1, "collective", 1)]
)
def test_grpo_trains_through_the_replicas(
    service: Service, max_staleness: int, transport: str, num_learners: int
) -> None:
    engine = {"type": "vllm", "address": service.app, "weight_transport": transport}
    placed = {"num_env_runners": 0, "num_learners": num_learners}
    algo = config(engine, rollout={"max_staleness": max_staleness}, **placed).build_algo()
    try:
        results = [algo.train() for _ in range(3)]
        assert algo.evaluate()["num_episodes"] == 4
        logdir = Path(algo.logdir)
    finally:
        algo.stop()
    learned = [result["learners"]["default_policy"] for result in results]
    assert all(x["trained_tokens"] > 0 and np.isfinite(x["policy_loss"]) for x in learned)
    assert all(result["env_runners"]["num_valid_episodes"] == 8 for result in results)
    if max_staleness == 0:
        assert max(x["mismatch_max"] for x in learned) < TOLERANCE
    else:
        assert learned[0]["mismatch_max"] < TOLERANCE and max(r["asynchrony"]["staleness_max"] for r in results) == 1
    from rllib_agentic.store import TrajectoryReader

    for stored in TrajectoryReader(logdir / "trajectories"):
        oldest = stored.trajectory.oldest_version
        assert oldest is not None and 0 <= stored.iteration - 1 - oldest <= max_staleness
