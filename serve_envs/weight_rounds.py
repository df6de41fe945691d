"""Who takes part in which broadcast of weights: replicas come when they can, and a learner sends to those that came."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple


class Round(NamedTuple):
    """One broadcast.

    Attributes:
        number: its number; no two of a group have the same.
        group: name of the process group, which stays from round to round as long as its members do. No other store, of
            engines that the sender had before, gives the same.
        first_rank: of each replica's workers; the sender is rank 0.
        size: of the group.
    """

    number: int
    group: str
    first_rank: Mapping[str, int]
    size: int


@dataclass(slots=True)
class _Waiting:
    workers: int
    since: float
    told: asyncio.Future[Round | None]


class WeightRounds:
    """Puts replicas that want a version together into rounds. All of it belongs to one event loop.

    A round begins when everybody who is expected has come, or when the first has waited for ``patience_s``: who comes
    later gets a round of its own, and so does a replica that starts long after the others.

    Args:
        patience_s: see above.
    """

    def __init__(self, patience_s: float = 5.0) -> None:
        self._patience_s = patience_s
        self._token: str | None = None
        self._expected: set[str] = set()
        self._waiting: dict[str, _Waiting] = {}
        self._running: dict[int, Round] = {}
        self._numbers = 0
        self._last: Round | None = None  # whose group can be used again
        self._changed = asyncio.Condition()

    async def open(self, token: str, expected: Iterable[str]) -> None:
        """A new version is there. Replicas that wait for an older one are told to ask again.

        Args:
            token: of its publication.
            expected: replicas that will come for it.
        """
        async with self._changed:
            self._token, self._expected = token, set(expected)
            for replica in list(self._waiting):
                self._tell(replica, None)
            self._changed.notify_all()

    async def join(self, token: str, replica: str, workers: int) -> Round | None:
        """Wait for a round.

        Args:
            token: of the publication that the replica wants.
            replica: its name.
            workers: how many ranks it needs.

        Returns:
            The round, which the sender has begun; None where the version is not the newest any more.
        """
        async with self._changed:
            if token != self._token:
                return None
            self._tell(replica, None)  # who asks twice has given the first question up
            loop = asyncio.get_running_loop()
            waiting = self._waiting[replica] = _Waiting(workers, loop.time(), loop.create_future())
            self._changed.notify_all()
        return await waiting.told

    async def proposed(self, token: str, wait_s: float) -> Round | None:
        """The next round of a version, for who sends it; None where there is none within ``wait_s``.

        Nobody is told before :meth:`begin`.
        """
        deadline = asyncio.get_running_loop().time() + wait_s
        async with self._changed:
            if token != self._token:  # it is lent before it is published
                await self._change(wait_s)
            while token == self._token and (left := deadline - asyncio.get_running_loop().time()) > 0:
                missing = self._expected - self._waiting.keys()
                since = min((w.since for w in self._waiting.values()), default=None)
                if since is not None:
                    patience = since + self._patience_s - asyncio.get_running_loop().time()
                    if not missing or patience <= 0:
                        return self._propose()
                    left = min(left, patience)
                await self._change(left)
        return None

    async def begin(self, round_: Round) -> None:
        """The sender is about to send: its members may come."""
        async with self._changed:
            self._running[round_.number] = round_
            self._expected -= round_.first_rank.keys()
            for replica in round_.first_rank:
                self._tell(replica, round_)

    async def end(self, number: int, *, whole: bool) -> None:
        """The sender is done.

        Args:
            number: of the round.
            whole: whether everything was sent. Otherwise those who took part are expected to come again.
        """
        async with self._changed:
            ended = self._running.pop(number)
            self._last = ended if whole else None
            if not whole:
                self._expected |= ended.first_rank.keys()

    async def _change(self, wait_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), wait_s)

    def _propose(self) -> Round:
        first_rank, size = {}, 1
        for replica in sorted(self._waiting):
            first_rank[replica] = size
            size += self._waiting[replica].workers
        self._numbers += 1
        last = self._last
        if last is None or (last.first_rank, last.size) != (first_rank, size):
            return Round(self._numbers, f"weights-{uuid.uuid4().hex}", first_rank, size)
        return Round(self._numbers, last.group, first_rank, size)

    def _tell(self, replica: str, answer: Round | None) -> None:
        waiting = self._waiting.pop(replica, None)
        if waiting is not None and not waiting.told.done():
            waiting.told.set_result(answer)
