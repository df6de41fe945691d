"""Seconds to bring a version of the weights from a learner to engines: Ray's object store against a broadcast, on CPU.

    python benchmarks/weights.py                       # SmolLM2-135M in float32, to two replicas of one worker each
    python benchmarks/weights.py --dtype bfloat16      # as for engines that hold bfloat16

Both ways are those of engine ``vllm``, from the learner's parameters to each worker's own, with all checksums; vLLM
itself is left out, so a worker copies each tensor into one of its own. The learner is a thread of this process (as with
``num_learners: 0``), every replica an actor. The two take turns, and the medians are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import uuid
from datetime import timedelta
from typing import Any

import psutil
import ray
import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_file

from rllib_agentic.learner.weight_lender import WeightLender
from rllib_agentic.rl_module.model_loading import ModelSettings, load_model
from rllib_agentic.rl_module.weight_checks import checkpoint_names, sample_checksums, tensor_checksum
from rllib_agentic.rl_module.weight_group import WeightGroup
from rllib_agentic.rl_module.weight_manifest import WeightManifest
from rllib_agentic.rl_module.weights import named_weights, read_weights, to_tensor
from serve_envs.weight_store import Published, find_store, start_store

APP = "benchmark"
CPU = torch.device("cpu")


@ray.remote(num_cpus=0)
class Replica:
    """Loads versions as an engine's replica does; its worker lives in it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._held: dict[str, torch.Tensor] = {}
        self._group: WeightGroup | None = None
        torch.set_num_threads(1)

    def from_object_store(self, box: list[Any]) -> int:
        """Fetch, write to shared memory, read in the worker."""
        from safetensors import safe_open  # its class does not travel with this one

        tensors = {n: to_tensor(a) for n, a in checkpoint_names(ray.get(box[0])).items()}
        sums = sample_checksums(tensors)
        handle, path = tempfile.mkstemp(suffix=".safetensors", dir="/dev/shm")
        os.close(handle)
        try:
            save_file(tensors, path)
            with safe_open(path, framework="pt") as file:
                for name, expected in sums.items():
                    assert tensor_checksum(file.get_tensor(name)) == expected
                for name in file.keys():  # noqa: SIM118
                    self._load(name, file.get_tensor(name))
        finally:
            os.unlink(path)
        return self._checksum()

    def from_broadcast(self) -> int:
        """Join a round, and take tensor by tensor."""
        store = find_store(APP)
        published: Published = ray.get(store.newest.remote())
        lent = published.lent
        assert lent is not None
        manifest = WeightManifest.from_plain(lent["manifest"])
        round_ = ray.get(store.join.remote(published.token, self._name, 1))
        if self._group is None or self._group.name != round_.group:
            tcp = dist.TCPStore(lent["host"], lent["port"], timeout=timedelta(seconds=60))
            self._group = WeightGroup(
                tcp, round_.group, round_.first_rank[self._name], round_.size, CPU, lent["timeout_s"]
            )
        self._group.meet(round_.number)
        for name, tensor in manifest.receive(self._group, CPU):
            self._load(name, tensor)
        return self._checksum()

    def cpu_seconds(self) -> float:
        """Of this process so far."""
        return sum(psutil.Process().cpu_times()[:2])

    def _load(self, name: str, tensor: torch.Tensor) -> None:
        held = self._held.get(name)
        if held is None:
            self._held[name] = tensor.clone()
        else:
            held.copy_(tensor)

    def _checksum(self) -> int:
        return tensor_checksum(self._held[sorted(self._held)[0]])


class Learner:
    """A model, and both ways from it."""

    def __init__(self, dtype: torch.dtype | None, replicas: list[Any]) -> None:
        self._model = load_model(ModelSettings(preset="smollm2"))
        self._dtype = dtype
        self._replicas = replicas
        self._lender = WeightLender(self._weights, CPU)
        self._store = start_store(APP)
        self._versions = 0

    @property
    def gigabytes(self) -> float:
        """As the learner holds them."""
        return sum(w.numel() * w.element_size() for w in self._weights().values()) / 1e9

    def object_store(self) -> list[int]:
        """Copy, put, and have all replicas load it."""
        box = [ray.put(read_weights(self._weights()))]
        return ray.get([replica.from_object_store.remote(box) for replica in self._replicas])

    def collective(self) -> list[int]:
        """Lend, and have all replicas come."""
        self._versions += 1
        token = uuid.uuid4().hex
        lent = self._lender.lend(token, self._versions, self._store, dtype=self._dtype, timeout_s=120.0)
        newest = Published(token, self._versions, [], False, lent.plain())
        ray.get(self._store.publish.remote(newest, [f"replica-{i}" for i in range(len(self._replicas))]))
        found = ray.get([replica.from_broadcast.remote() for replica in self._replicas])
        self._lender.take_back()
        return found

    def close(self) -> None:
        """End the lender's thread."""
        self._lender.close()

    def _weights(self) -> dict[str, torch.Tensor]:
        return {f"model.{name}": tensor for name, tensor in named_weights(self._model).items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the engines")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ray.init(num_cpus=2, object_store_memory=2 << 30, include_dashboard=False, log_to_driver=False)
    replicas = [Replica.remote(f"replica-{i}") for i in range(options.replicas)]
    learner = Learner(getattr(torch, options.dtype) if options.dtype != "float32" else None, replicas)
    ways = {"object store": learner.object_store, "collective": learner.collective}
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}

    def spent() -> float:
        return sum(psutil.Process().cpu_times()[:2]) + sum(ray.get([r.cpu_seconds.remote() for r in replicas]))

    for number in range(options.times + 1):  # the first one warms up: groups, buffers
        for name, bring in ways.items():
            before, began = spent(), time.perf_counter()
            assert len(set(bring())) == 1
            seconds = time.perf_counter() - began
            if number:
                wall[name].append(seconds)
                cpu[name].append(spent() - before)
    title = (
        f"SmolLM2-135M, {learner.gigabytes:.2f} GB in the learner, engines {options.dtype}, {options.replicas} replicas"
    )
    table = Table(title=title)
    for column in ("way", "seconds", "from", "to", "CPU seconds"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for name in ways:
        times = wall[name]
        spent_here = statistics.median(cpu[name])
        table.add_row(
            name, f"{statistics.median(times):.2f}", f"{min(times):.2f}", f"{max(times):.2f}", f"{spent_here:.2f}"
        )
    console = Console(width=110)
    console.print(table)
    slow, fast = (statistics.median(wall[name]) for name in ("object store", "collective"))
    console.print(f"object store / collective: {slow / fast:.2f} (wall)")
    learner.close()
    ray.shutdown()


if __name__ == "__main__":
    main()
