"""Broadcasts of weights: what comes is what was sent, and who is left alone gives up within the time that was set."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rllib_agentic.errors import InputError
from rllib_agentic.rl_module.weight_checks import tensor_checksum
from rllib_agentic.rl_module.weight_group import WeightGroup, WeightsInterruptedError
from rllib_agentic.rl_module.weight_manifest import WeightManifest

CPU = torch.device("cpu")
SHAPES: dict[str, tuple[int, ...]] = {
    "model.model.embed.weight": (50, 16),
    "model.model.layers.0.bias": (7,),
    "model.model.layers.0.scale": (),
    "model.model.layers.0.weight": (33, 3),
    "model.model.empty": (0, 4),
    "model.lm_head.weight": (50, 16),
}


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    found["model.model.layers.0.weight"] = found["model.model.layers.0.weight"].t().contiguous().t()  # strided
    return found | {"model.model.steps": torch.tensor([3, 2**40])}


class Ranks:
    """A store, and each rank of a group in a thread of its own."""

    def __init__(self, size: int, timeout_s: float = 20.0) -> None:
        self.size, self.timeout_s = size, timeout_s
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def join(self, rank: int, name: str = "group") -> WeightGroup:
        store = dist.TCPStore("127.0.0.1", self.store.port, timeout=timedelta(seconds=20))
        return WeightGroup(store, name, rank, self.size, CPU, self.timeout_s)

    def run(self, work: Callable[[int], Any], ranks: int | None = None) -> list[Any]:
        """What each rank gave or raised."""

        def guarded(rank: int) -> Any:
            try:
                return work(rank)
            except Exception as error:
                return error

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(guarded, range(self.size if ranks is None else ranks)))


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("bucket_bytes", [1, 600, 1 << 20])
def test_every_tensor_arrives_whatever_the_buckets(dtype: torch.dtype | None, bucket_bytes: int) -> None:
    ranks, sent = Ranks(3), weights()
    manifest = WeightManifest.of(sent, dtype, bucket_bytes)

    def work(rank: int) -> dict[str, torch.Tensor]:
        group, found = ranks.join(rank), {}
        for number in range(2):  # a group serves many broadcasts
            group.meet(number)
            if rank == 0:
                manifest.send(group, sent, CPU)
            else:
                found = dict(WeightManifest.from_plain(manifest.plain()).receive(group, CPU))
        group.close()
        return found

    _, *received = ranks.run(work)
    for found in received:
        assert list(found) == [name.removeprefix("model.") for name in sent]
        for name, tensor in sent.items():
            wanted = tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor
            got = found[name.removeprefix("model.")]
            assert got.dtype == wanted.dtype and got.shape == wanted.shape and torch.equal(got, wanted)
            assert tensor_checksum(got) == tensor_checksum(wanted)


def test_a_changed_byte_and_a_foreign_name_are_seen() -> None:
    ranks, sent = Ranks(2), weights()
    manifest = WeightManifest.of(sent, None)
    other = sent | {"model.model.layers.0.bias": sent["model.model.layers.0.bias"] + 1e-6}

    def work(rank: int) -> Any:
        group = ranks.join(rank)
        group.meet(0)
        return manifest.send(group, other, CPU) if rank == 0 else dict(manifest.receive(group, CPU))

    _, error = ranks.run(work)
    assert isinstance(error, ValueError) and "not those that were sent: model.layers.0.bias" in str(error)
    with pytest.raises(InputError, match=r"no place in a checkpoint for value_head\.weight"):
        WeightManifest.of({"value_head.weight": torch.ones(1)}, None)


def test_a_rank_that_never_comes_is_missed_in_time() -> None:
    ranks = Ranks(3, timeout_s=0.5)
    began = time.monotonic()
    found = ranks.run(lambda rank: ranks.join(rank).meet(0), ranks=2)
    assert time.monotonic() - began < 10
    assert all(isinstance(one, WeightsInterruptedError) for one in found)
    assert any("waited 0.5 s for 3 ranks to meet" in str(one) for one in found)


@pytest.mark.parametrize("failing", [0, 2])
def test_who_fails_midway_takes_the_others_out_at_once_and_a_new_group_works(failing: int) -> None:
    ranks, sent = Ranks(4), weights()
    manifest = WeightManifest.of(sent, None, bucket_bytes=1)
    midway = threading.Barrier(4)

    def broken(rank: int) -> Any:
        group = ranks.join(rank, "first")
        group.meet(0)
        buffer = torch.zeros(8)
        group.broadcast(buffer)
        midway.wait()
        if rank == failing:
            group.give_up()
            return None
        began = time.monotonic()
        with pytest.raises(WeightsInterruptedError):
            while True:  # the sender's small buffers go out, whoever reads them
                group.broadcast(buffer)
        return time.monotonic() - began

    assert all(one is None or one < 5 for one in ranks.run(broken))

    def whole(rank: int) -> Any:
        group = ranks.join(rank, "second")
        group.meet(1)
        return manifest.send(group, sent, CPU) if rank == 0 else dict(manifest.receive(group, CPU))

    for found in ranks.run(whole)[1:]:
        assert torch.equal(found["lm_head.weight"], sent["model.lm_head.weight"])


def test_a_silent_rank_is_given_up_in_time() -> None:
    ranks = Ranks(3, timeout_s=1.0)
    awake = threading.Event()

    def work(rank: int) -> Any:
        group = ranks.join(rank)
        group.meet(0)
        if rank == 0:
            awake.wait(20)  # a sender that hangs
            return None
        began = time.monotonic()
        with pytest.raises(WeightsInterruptedError):
            group.broadcast(torch.zeros(1 << 20))
        awake.set()
        return time.monotonic() - began

    assert all(one is None or 0.5 < one < 10 for one in ranks.run(work))
