"""The newest weights of a run, for every engine replica, whenever it starts."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import ray
from ray.actor import ActorHandle

from serve_envs.weight_rounds import Round, WeightRounds

NAMESPACE = "rllib_agentic"


class Published(NamedTuple):
    """One version of the weights.

    Attributes:
        token: of this publication alone; two runs may both have a version 3.
        version: its number.
        box: a list of one: the reference to the arrays by name. (Ray would resolve a bare reference.) Empty where the
            weights are lent.
        finish_turns: whether running turns end before it is loaded.
        lent: where they are not in the object store: how a learner broadcasts them, a
            :class:`~rllib_agentic.learner.weight_lender.LentWeights` in its plain form.
    """

    token: str
    version: int
    box: list[Any]
    finish_turns: bool
    lent: dict[str, Any] | None = None

    @classmethod
    def of(cls, version: int, weights: dict[str, Any], *, finish_turns: bool) -> Published:
        """Put the weights into the object store."""
        return cls(uuid.uuid4().hex, version, [ray.put(weights)], finish_turns)


class WeightStore:
    """Holds the newest weights, or who lends them, and puts replicas and lender together.

    In the object store they stay as long as the reference is held here.
    """

    def __init__(self) -> None:
        self._newest: Published | None = None
        self._rounds = WeightRounds()

    async def publish(self, newest: Published, expected: Sequence[str] = ()) -> None:
        """Replace what was there. A lower version is fine: a run may go back.

        Args:
            newest: the weights.
            expected: of lent ones: replicas that will come for them at once.
        """
        self._newest = newest
        await self._rounds.open(newest.token, expected)

    async def newest(self) -> Published | None:
        """What a replica must load before it serves; None before the first publication."""
        return self._newest

    async def join(self, token: str, replica: str, workers: int) -> Round | None:
        """See :meth:`~serve_envs.weight_rounds.WeightRounds.join`."""
        return await self._rounds.join(token, replica, workers)

    async def proposed(self, token: str, wait_s: float) -> Round | None:
        """See :meth:`~serve_envs.weight_rounds.WeightRounds.proposed`."""
        return await self._rounds.proposed(token, wait_s)

    async def begin(self, round_: Round) -> None:
        """See :meth:`~serve_envs.weight_rounds.WeightRounds.begin`."""
        await self._rounds.begin(round_)

    async def end(self, number: int, *, whole: bool) -> None:
        """See :meth:`~serve_envs.weight_rounds.WeightRounds.end`."""
        await self._rounds.end(number, whole=whole)


def start_store(app: str) -> ActorHandle:
    """The store of an application; it lives as long as who starts it."""
    return ray.remote(num_cpus=0)(WeightStore).options(name=_name(app), namespace=NAMESPACE).remote()


def find_store(app: str) -> ActorHandle:
    """The store of an application that runs.

    Raises:
        ValueError: there is none.
    """
    return ray.get_actor(_name(app), namespace=NAMESPACE)


def _name(app: str) -> str:
    return f"{app}-weights"
