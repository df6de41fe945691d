"""A learner lends its weights to receivers, through the store that brings them together.

Receivers here are threads of the test, each with connections of its own; in tests/vllm they are vLLM's workers.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import learner_group
import pytest
import ray
import torch
import torch.distributed as dist
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner_group import LearnerGroup
from tiny_policy import random_rows

from rllib_agentic.learner.train_batch import plan_minibatches
from rllib_agentic.rl_module.weight_checks import tensor_checksum
from rllib_agentic.rl_module.weight_group import WeightGroup, WeightsInterruptedError
from rllib_agentic.rl_module.weight_manifest import WeightManifest
from serve_envs.weight_store import Published, find_store, start_store

pytestmark = pytest.mark.ray
CPU = torch.device("cpu")
PATIENCE_S = 300
Sums = dict[str, int]


class Receiver:
    """One replica with one worker."""

    def __init__(self, app: str, name: str) -> None:
        self._app, self._name = app, name
        self._group: WeightGroup | None = None
        self._thread = ThreadPoolExecutor(1)
        self.groups_made = 0

    def start(self, **how: Any) -> Future[Any]:
        """Begin to :meth:`receive`."""
        return self._thread.submit(self.receive, **how)

    def receive(self, dies: bool = False) -> tuple[int, Sums] | str | None:
        """Take the newest weights; gives their version and checksums, why they were cut off, or None where replaced."""
        store = find_store(self._app)
        newest: Published = ray.get(store.newest.remote())
        lent = newest.lent
        assert lent is not None
        manifest = WeightManifest.from_plain(lent["manifest"])
        round_ = ray.get(store.join.remote(newest.token, self._name, 1))
        if round_ is None:
            return None
        if self._group is None or self._group.closed or self._group.name != round_.group:
            tcp = dist.TCPStore(lent["host"], lent["port"], timeout=timedelta(seconds=20))
            rank = round_.first_rank[self._name]
            self._group = WeightGroup(tcp, round_.group, rank, round_.size, CPU, lent["timeout_s"])
            self.groups_made += 1
        found: Sums = {}
        try:
            self._group.meet(round_.number)
            if dies:
                self._group.close()  # its connections end without a word, as those of a dead process do
                return "dead"
            for name, tensor in manifest.receive(self._group, CPU):
                found[name] = tensor_checksum(tensor)
        except WeightsInterruptedError as error:
            return str(error)
        return newest.version, found


class Lending:
    """A learner group, its store, and what it holds."""

    def __init__(self, learners: LearnerGroup) -> None:
        self.learners = learners
        self.version = -1

    def open(self) -> None:
        self.app = uuid.uuid4().hex
        self.store = start_store(self.app)

    def receiver(self, name: str) -> Receiver:
        return Receiver(self.app, name)

    def publish(self, expected: list[str], timeout_s: float = 20.0) -> None:
        token, store = uuid.uuid4().hex, self.store
        results = self.learners.foreach_learner(
            lambda learner: learner.lend_weights(token, store, dtype=None, timeout_s=timeout_s)
        )
        lent = next(r.get() for r in results if r.get() is not None)
        self.version = lent.version
        ray.get(store.publish.remote(Published(token, lent.version, [], False, lent.plain()), expected))

    def train(self, seed: int) -> None:
        plan = plan_minibatches(random_rows(4, seed=seed, legal=True), seed=seed, num_minibatches=1)
        for result in self.learners.foreach_learner(lambda learner: learner.train_rows(plan)):
            assert result.ok, result.get()

    def sums(self) -> Sums:
        def of(learner: Any) -> Sums:
            weights = learner.module[DEFAULT_MODULE_ID].policy_weights()
            return {name.removeprefix("model."): tensor_checksum(tensor) for name, tensor in weights.items()}

        return next(iter(self.learners.foreach_learner(of))).get()


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    paths = os.pathsep.join([str(Path(learner_group.__file__).parent), os.environ.get("PYTHONPATH", "")])
    ray.init(
        num_cpus=2,
        object_store_memory=100 << 20,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module", params=[0, 1], ids=["learner in the driver", "remote learner"])
def learners(cluster: None, request: pytest.FixtureRequest) -> Iterator[LearnerGroup]:
    config = learner_group.learner_config(num_learners=request.param)
    learners = LearnerGroup(config=config, module_spec=config.get_multi_rl_module_spec())
    yield learners
    learners.shutdown()


@pytest.fixture
def lending(learners: LearnerGroup) -> Iterator[Lending]:
    """A store of the test's own; the learners are those of the file."""
    lending = Lending(learners)
    lending.open()
    yield lending
    learners.foreach_learner(lambda learner: learner.stop_lending())
    ray.kill(lending.store)


def test_receivers_get_every_version_and_a_late_one_gets_what_is_lent(lending: Lending) -> None:
    one, two, late = (lending.receiver(name) for name in ("one", "two", "late"))
    versions = []
    for seed in range(3):
        lending.publish(["one", "two"])
        found = [receiving.result(PATIENCE_S) for receiving in (one.start(), two.start())]
        assert found[0] == found[1] and found[0][1] == lending.sums()
        versions.append(found[0][0])
        if seed == 1:
            assert late.receive() == found[0]
        lending.train(seed)
    assert versions == [versions[0], versions[0] + 1, versions[0] + 2]
    # The same members use their group again; a round with another member between makes a new one.
    assert (one.groups_made, two.groups_made, late.groups_made) == (2, 2, 1)


def test_what_is_trained_is_not_lent_until_it_is_published(lending: Lending) -> None:
    receiver = lending.receiver("one")
    lending.publish(["one"])
    old = lending.version
    lending.train(0)
    waiting = receiver.start()
    with pytest.raises(TimeoutError):
        waiting.result(1.0)  # nobody sends weights that have changed since
    lending.publish([])
    assert waiting.result(PATIENCE_S) is None  # it is told that there are newer ones
    assert receiver.receive() == (lending.version, lending.sums()) and lending.version == old + 1


def test_a_receiver_that_dies_in_a_round_takes_nobody_with_it(lending: Lending) -> None:
    one, two = lending.receiver("one"), lending.receiver("dies")
    lending.publish(["one", "dies"], timeout_s=5.0)
    survivor = one.start()
    assert two.receive(dies=True) == "dead"
    first = survivor.result(PATIENCE_S)
    if isinstance(first, str):  # else all were on their way before it was seen: these weights are small
        first = one.receive()
    assert first == (lending.version, lending.sums())
    lending.train(0)
    lending.publish(["one"])
    assert one.receive() == (lending.version, lending.sums())


def test_a_receiver_that_never_meets_the_others_is_given_up(lending: Lending) -> None:
    one = lending.receiver("one")
    lending.publish(["one", "silent"], timeout_s=2.0)
    newest = ray.get(lending.store.newest.remote())
    silent = lending.store.join.remote(newest.token, "silent", 1)  # it joins, and is never heard of again
    assert isinstance(one.receive(), str) and ray.get(silent) is not None
    assert one.receive() == (lending.version, lending.sums())  # after some patience with the other


def test_the_learner_outlives_the_engines(lending: Lending) -> None:
    lending.publish([])
    ray.kill(lending.store)
    lending.train(0)
    lending.open()
    lending.publish(["one"])
    assert lending.receiver("one").receive() == (lending.version, lending.sums())
