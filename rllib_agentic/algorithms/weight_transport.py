"""How new weights reach engines: through Ray's object store, or by a broadcast from the learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from rllib_agentic.errors import InputError


class WeightPlace(NamedTuple):
    """Where a process holds weights.

    Attributes:
        kind: ``cpu`` or ``cuda``, as torch names it.
        device: which one; of GPUs the UUID, so that the same one is known from everywhere.
    """

    kind: str
    device: str


def choose_transport(
    wanted: Literal["auto", "object_store", "collective"], learner: WeightPlace, workers: Sequence[WeightPlace]
) -> Literal["object_store", "collective"]:
    """What the setting amounts to here.

    Args:
        wanted: of ``engine.weight_transport``. ``auto`` is ``collective`` where all hold GPUs and the learner's is none
            of the workers'.
        learner: the sender.
        workers: the receivers.

    Raises:
        InputError: ``collective`` cannot work: GPUs on one side only, or a GPU that two ranks share.

    Example:
        >>> choose_transport("auto", WeightPlace("cpu", "cpu"), [WeightPlace("cpu", "cpu")])
        'object_store'
    """
    if wanted == "object_store":
        return wanted
    kinds = {place.kind for place in (learner, *workers)}
    gpus = [place.device for place in (learner, *workers) if place.kind != "cpu"]
    fault = None
    if len(kinds) > 1:
        fault = f"the learner holds its weights on {learner.kind}, the engines on {workers[0].kind}"
    elif len(set(gpus)) < len(gpus):
        fault = "learner and engines share a GPU, which NCCL does not take for two ranks"
    if wanted == "auto":
        return "object_store" if fault or not gpus else "collective"
    if fault:
        raise InputError(f"config.engine.weight_transport: collective cannot work here: {fault}; set object_store")
    return "collective"
