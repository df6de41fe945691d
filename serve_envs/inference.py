"""An engine as a Ray Serve application: replicas of vLLM, a store of weights, and a gateway where HTTP is wanted."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import ray
from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig
from ray.serve.schema import LoggingConfig

from rllib_agentic.engines.vllm_settings import VLLMEngineSettings
from rllib_agentic.engines.vllm_transport import REPLICA_DEPLOYMENT
from rllib_agentic.errors import InfrastructureError
from rllib_agentic.rl_module.model_settings import ModelSettings
from serve_envs.app import start_serve
from serve_envs.inference_gateway import InferenceGateway
from serve_envs.inference_replica import InferenceReplica
from serve_envs.lease import Lease
from serve_envs.weight_store import start_store

_ROUTER = RequestRouterConfig(request_router_class="serve_envs.routing:SessionRouter")
_LOGGING = LoggingConfig(enable_access_log=False, log_level="WARNING")


def build_inference_app(
    model: ModelSettings, settings: VLLMEngineSettings, args: Mapping[str, Any], *, app: str, lease: Lease | None = None
) -> Application:
    """The application of one model.

    Args:
        model: which model.
        settings: replicas and their resources.
        args: of vLLM's ``AsyncEngineArgs``, see :meth:`VLLMEngineSettings.vllm_args`.
        app: its name.
        lease: the application stops itself when this is over.
    """
    gpus = settings.gpus_per_replica
    if gpus is None:
        gpus = 1.0 if ray.cluster_resources().get("GPU") else 0.0
    resources: dict[str, Any] = {"num_cpus": settings.cpus_per_replica, "num_gpus": gpus}
    options: dict[str, Any] = {"ray_actor_options": resources}
    if settings.tensor_parallel_size > 1:
        bundle = {"CPU": settings.cpus_per_replica} | ({"GPU": gpus} if gpus else {})
        options = {
            "ray_actor_options": {"num_cpus": settings.cpus_per_replica},
            "placement_group_bundles": [bundle] * settings.tensor_parallel_size,
            "placement_group_strategy": "PACK",
        }
    replicas = serve.deployment(
        InferenceReplica,
        name=REPLICA_DEPLOYMENT,
        num_replicas=settings.num_replicas,
        request_router_config=_ROUTER,
        max_ongoing_requests=100_000,
        graceful_shutdown_wait_loop_s=0.1,
        graceful_shutdown_timeout_s=20.0,
        health_check_period_s=2.0,
        health_check_timeout_s=120.0,
        logging_config=_LOGGING,
        max_constructor_retry_count=2,
        **options,
    ).bind(model, dict(args), start_store(app), lease)
    if settings.http_port is None:
        return replicas
    return serve.deployment(
        InferenceGateway,
        name="Gateway",
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=100_000,
        graceful_shutdown_wait_loop_s=0.1,
        logging_config=_LOGGING,
    ).bind(replicas, model, app)


def deploy_inference(
    model: ModelSettings, settings: VLLMEngineSettings, args: Mapping[str, Any], name: str | None = None
) -> str:
    """Start an engine on Serve in the connected Ray cluster.

    It lives no longer than who calls this: :func:`undeploy` of ``serve_envs.app`` stops it, and so does the death of
    the caller's process.

    Args:
        model: which model.
        settings: replicas and their resources.
        args: of vLLM's ``AsyncEngineArgs``, see :meth:`VLLMEngineSettings.vllm_args`.
        name: of the application; None makes one that is not taken.

    Returns:
        The application's name.

    Raises:
        InfrastructureError: ``engine_unreachable``: the replicas did not start; the message has their error.
    """
    app = name or f"vllm-{uuid.uuid4().hex[:8]}"
    start_serve(settings.http_port)
    application = build_inference_app(model, settings, args, app=app, lease=Lease.of_caller())
    try:
        serve.run(application, name=app, route_prefix=f"/{app}" if settings.http_port else None)
    except RuntimeError as error:
        deployments = serve.status().applications[app].deployments.values()
        reasons = "; ".join(deployment.message for deployment in deployments if deployment.message)
        serve.delete(app)
        raise InfrastructureError("engine_unreachable", f"{app}: could not be deployed: {error} {reasons}") from error
    return app
