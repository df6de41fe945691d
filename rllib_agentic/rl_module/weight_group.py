"""A process group of its own between a learner and the workers of engines, in which weights are broadcast."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from rllib_agentic.errors import InfrastructureError

_POLL_S = 0.001
_LOOK_S = 0.05  # how often others are asked whether they gave up
_PATIENT = 10  # how many times longer NCCL's own watchdog waits, which would end the process


class WeightsInterruptedError(InfrastructureError):
    """A broadcast did not come to its end on every side: a member died, or was silent for too long."""

    def __init__(self, message: str) -> None:
        super().__init__("weights_interrupted", message)

    def __reduce__(self) -> tuple[type[InfrastructureError], tuple[str, ...]]:
        """Pickle with the one argument."""
        return type(self), (str(self),)


class WeightGroup:
    """One rank of a group that a learner (rank 0) broadcasts to: NCCL between GPUs, gloo between CPUs.

    It does not touch torch's default group, which learners and vLLM's workers have for themselves. Whoever fails says
    so in the store, and all others give up within a moment, whatever the backend; who dies is missed after
    ``timeout_s``.

    Args:
        store: of the sender; every rank has a connection.
        name: of the group; no two groups of a store ever had the same.
        rank: 0 sends.
        size: how many ranks.
        device: of the tensors; ``cuda`` means NCCL.
        timeout_s: longest silence of the others.
    """

    def __init__(
        self, store: dist.TCPStore, name: str, rank: int, size: int, device: torch.device, timeout_s: float
    ) -> None:
        self.name = name
        self._store, self._rank, self._size = store, rank, size
        self._device = device
        self._timeout_s = timeout_s
        self._round = ""
        self._group: Any = None
        self._closed = False

    def meet(self, number: int) -> None:
        """Wait until every rank is here for a broadcast.

        Args:
            number: of this broadcast; no two of a group have the same.

        Raises:
            WeightsInterruptedError: some rank did not come in time, or gave up.
        """
        self._round = f"broadcast/{self.name}/{number}"
        here = [f"{self._round}/here/{rank}" for rank in range(self._size)]
        try:
            self._store.set(here[self._rank], "1")
            self._wait(lambda: self._store.check(here), f"{self._size} ranks to meet")
            if self._group is None:
                self._group = self._make_group()
        except (WeightsInterruptedError, RuntimeError) as error:
            raise self._broken(error) from error

    def broadcast(self, tensor: torch.Tensor) -> None:
        """From rank 0 to all others, in place; comes back when it is there.

        Args:
            tensor: contiguous, on this group's device; of the same size everywhere.

        Raises:
            WeightsInterruptedError: it was not there in time, or some rank gave up.
        """
        try:
            work = self._group.broadcast([tensor], dist.BroadcastOptions())
            self._wait(work.is_completed, "a broadcast")
            work.wait()
            if self._device.type == "cuda":
                torch.cuda.current_stream(self._device).synchronize()
        except (WeightsInterruptedError, RuntimeError) as error:
            raise self._broken(error) from error

    @property
    def closed(self) -> bool:
        """Whether this rank has left."""
        return self._closed

    def close(self) -> None:
        """Leave the group, whatever goes on in it."""
        self._closed = True
        if self._group is not None:
            self._group.abort()
            self._group = None

    def give_up(self) -> None:
        """Make all other ranks leave their present broadcast, and leave it."""
        with suppress(RuntimeError):  # where the store went with the sender, the others see that by themselves
            self._store.set(f"{self._round}/failed", str(self._rank))
        self.close()

    def _wait(self, done: Any, what: str) -> None:
        began = looked = time.monotonic()
        while not done():
            now = time.monotonic()
            if now - looked > _LOOK_S:
                looked = now
                if self._store.check([f"{self._round}/failed"]):
                    raise WeightsInterruptedError(f"{self.name}: another rank gave up")
                if now - began > self._timeout_s:
                    raise WeightsInterruptedError(f"{self.name}: waited {self._timeout_s:g} s for {what}")
            time.sleep(_POLL_S)

    def _make_group(self) -> Any:
        store = dist.PrefixStore(f"group/{self.name}", self._store)
        timeout = timedelta(seconds=self._timeout_s)
        if self._device.type == "cuda":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = _PATIENT * timeout
            return dist.ProcessGroupNCCL(store, self._rank, self._size, options)
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._timeout = timeout
        options._threads = 1
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=_address_towards(self._store))]
        return dist.ProcessGroupGloo(store, self._rank, self._size, options)

    def _broken(self, error: Exception) -> WeightsInterruptedError:
        self.give_up()
        if isinstance(error, WeightsInterruptedError):
            return error
        return WeightsInterruptedError(f"{self.name}: {type(error).__name__}: {str(error)[:300]}")


def place_of(device: torch.device) -> tuple[str, str]:
    """Kind of a device, and which one it is: a GPU by its UUID, which is the same from every process."""
    if device.type != "cuda":
        return device.type, device.type
    return device.type, str(torch.cuda.get_device_properties(device).uuid)


def _address_towards(store: dist.TCPStore) -> str:
    """This node's address as the store's node sees it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((store.host, store.port))  # sends nothing
        return probe.getsockname()[0]
