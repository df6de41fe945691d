"""The newest weights of a run, for every engine replica, whenever it starts."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

import ray
from ray.actor import ActorHandle

NAMESPACE = "rllib_agentic"


class Published(NamedTuple):
    """One version of the weights.

    Attributes:
        token: of this publication alone; two runs may both have a version 3.
        version: its number.
        box: a list of one: the reference to the arrays by name. (Ray would resolve a bare reference.)
        finish_turns: whether running turns end before it is loaded.
    """

    token: str
    version: int
    box: list[Any]
    finish_turns: bool

    @classmethod
    def of(cls, version: int, weights: dict[str, Any], *, finish_turns: bool) -> Published:
        """Put the weights into the object store."""
        return cls(uuid.uuid4().hex, version, [ray.put(weights)], finish_turns)


class WeightStore:
    """Holds a reference to the newest weights, and so keeps them in the object store."""

    def __init__(self) -> None:
        self._newest: Published | None = None

    def publish(self, newest: Published) -> None:
        """Replace what was there. A lower version is fine: a run may go back."""
        self._newest = newest

    def newest(self) -> Published | None:
        """What a replica must load before it serves; None before the first publication."""
        return self._newest


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
