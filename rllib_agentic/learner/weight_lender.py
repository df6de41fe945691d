"""Weights that a learner lends between two updates: a thread sends them to whoever comes for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
import torch
import torch.distributed as dist
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from rllib_agentic.rl_module.weight_group import WeightGroup, WeightsInterruptedError
from rllib_agentic.rl_module.weight_manifest import WeightManifest

logger = logging.getLogger(__name__)

_ASK_S = 2.0


@dataclass(frozen=True, slots=True)
class LentWeights:
    """What receivers must know.

    Attributes:
        version: of the weights.
        manifest: what will be sent.
        host, port: of the store in which the groups meet.
        timeout_s: longest silence in a broadcast.
    """

    version: int
    manifest: WeightManifest
    host: str
    port: int
    timeout_s: float

    def plain(self) -> dict[str, Any]:
        """In dicts, lists and numbers: who passes it on need not import what it is made of."""
        return {
            "host": self.host,
            "port": self.port,
            "timeout_s": self.timeout_s,
            "manifest": self.manifest.plain(),
        }


@dataclass(frozen=True, slots=True)
class _Loan:
    token: str
    lent: LentWeights
    rounds: ActorHandle


class WeightLender:
    """Sends a module's present weights, straight from where they are, as often as they are asked for.

    Nothing is copied, so they must not change while they are lent: :meth:`take_back` comes first.

    Args:
        read: gives the weights, name to tensor; each call gives the same ones until they change.
        device: where they are.
    """

    def __init__(self, read: Callable[[], Mapping[str, torch.Tensor]], device: torch.device) -> None:
        self._read = read
        self._device = device
        self._lock = threading.Lock()  # held while weights are sent, and to change what is lent
        self._loan: _Loan | None = None
        self._wanted = threading.Event()
        self._ended = threading.Event()  # of the present thread
        self._store: dist.TCPStore | None = None
        self._group: WeightGroup | None = None
        self._thread: threading.Thread | None = None

    def lend(
        self, token: str, version: int, rounds: ActorHandle, *, dtype: torch.dtype | None, timeout_s: float
    ) -> LentWeights:
        """Lend the present weights from now on.

        Args:
            token: of this publication.
            version: of the weights.
            rounds: the actor that says who wants them: a ``WeightStore`` of ``serve_envs``.
            dtype: in which floats are sent; None leaves each in its own.
            timeout_s: longest silence in a broadcast before it is given up.
        """
        with self._lock:
            if self._store is None:
                host = ray.util.get_node_ip_address()
                self._store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
            manifest = WeightManifest.of(self._read(), dtype)
            lent = LentWeights(version, manifest, self._store.host, self._store.port, timeout_s)
            self._loan = _Loan(token, lent, rounds)
            self._wanted.set()
            if self._thread is None:
                self._ended = threading.Event()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._ended,), name="weight-lender", daemon=True
                )
                self._thread.start()
        return lent

    def take_back(self) -> None:
        """Lend nothing any more; waits until a broadcast that goes on has ended."""
        with self._lock:
            self._loan = None
            self._wanted.clear()

    def close(self) -> None:
        """Take the weights back, and end the thread. What is lent later has a thread of its own."""
        with self._lock:
            self._loan = None
            self._ended.set()
            self._wanted.set()
            if self._group is not None:
                self._group.close()
                self._group = None
        if self._thread is not None:
            self._thread.join(2 * _ASK_S)
            self._thread = None

    def _serve(self, ended: threading.Event) -> None:
        while not ended.is_set():
            self._wanted.wait()
            loan = self._loan
            if loan is None:
                continue
            try:
                round_ = ray.get(loan.rounds.proposed.remote(loan.token, _ASK_S))
                if round_ is not None:
                    self._send(loan, round_)
            except RayActorError:  # the engines are gone, and nobody can ask any more
                with self._lock:
                    if self._loan is loan:
                        self._loan = None
                        self._wanted.clear()

    def _send(self, loan: _Loan, round_: Any) -> None:
        with self._lock:
            if self._loan is not loan:
                return
            ray.get(loan.rounds.begin.remote(round_))
            whole = False
            try:
                group = self._joined(loan.lent, round_)
                group.meet(round_.number)
                loan.lent.manifest.send(group, self._read(), self._device)
                whole = True
            except WeightsInterruptedError as error:
                logger.warning("version %d did not reach all of %s: %s", loan.lent.version, [*round_.first_rank], error)
            except Exception:
                logger.exception("version %d could not be sent to %s", loan.lent.version, [*round_.first_rank])
                if self._group is not None:
                    self._group.give_up()
            finally:
                if not whole:
                    self._group = None
                ray.get(loan.rounds.end.remote(round_.number, whole=whole))

    def _joined(self, lent: LentWeights, round_: Any) -> WeightGroup:
        assert self._store is not None
        if self._group is None or self._group.name != round_.group:
            if self._group is not None:
                self._group.close()
            self._group = WeightGroup(self._store, round_.group, 0, round_.size, self._device, lent.timeout_s)
        return self._group
