"""Ray for the time of a command."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator

from pydantic import Field

from rllib_agentic.components import Settings
from rllib_agentic.errors import InputError

_ANSWER_TIMEOUT_S = 10.0


class ClusterOptions(Settings):
    """How to reach or start Ray.

    Attributes:
        address: of a running cluster; None starts Ray on this machine.
        num_cpus: CPUs of a Ray (of each node) that is started here; None for what the machine has.
        num_gpus: GPUs, likewise.
        num_nodes: simulate a cluster of so many nodes on this machine.
        object_store_memory: bytes of each node's object store.
    """

    address: str | None = None
    num_cpus: int | None = Field(default=None, ge=1)
    num_gpus: int | None = Field(default=None, ge=0)
    num_nodes: int | None = Field(default=None, ge=1)
    object_store_memory: int | None = Field(default=None, ge=75 << 20)


@contextlib.contextmanager
def connected(options: ClusterOptions, *, verbosity: int = 0) -> Iterator[None]:
    """Connect to Ray, or start it; what was started here is stopped afterwards, Serve included.

    Raises:
        InputError: no cluster answers at the address.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    level = {0: logging.ERROR, 1: logging.INFO, 2: logging.DEBUG}[verbosity]
    started = options.model_dump(include={"num_cpus", "num_gpus", "object_store_memory"}, exclude_none=True)
    nodes = None
    if options.address is not None:
        if started or options.num_nodes:
            raise InputError(
                "--ray-address: a running cluster has its own CPUs, GPUs, nodes and memory; leave them out"
            )
        _check_answers(options.address)
        try:
            ray.init(address=options.address, log_to_driver=verbosity > 0, logging_level=level)
        except (ConnectionError, ValueError) as error:
            raise InputError(f"--ray-address {options.address}: {error}") from error
    elif options.num_nodes:
        from ray.cluster_utils import Cluster

        nodes = Cluster()
        for _ in range(options.num_nodes):
            nodes.add_node(**started)
        ray.init(address=nodes.address, log_to_driver=verbosity > 0, logging_level=level)
    else:
        ray.init(address="local", include_dashboard=False, log_to_driver=verbosity > 0, logging_level=level, **started)
    try:
        yield
    finally:
        ray.shutdown()
        if nodes is not None:
            nodes.shutdown()


def _check_answers(address: str) -> None:
    """Ray itself tries for more than a minute, and then ends the process where nobody answers."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # "auto", or an address of another kind
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"--ray-address {address}: nothing answers there: {error}") from error
