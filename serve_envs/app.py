"""An environment as a Ray Serve application: replicas that hold sessions, and a gateway where HTTP is wanted."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import ray
from fastapi import FastAPI
from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import LoggingConfig
from ray.util import get_current_placement_group

from rllib_agentic.envs.env import Env
from rllib_agentic.envs.registry import env_factory
from rllib_agentic.envs.serve_transport import WORKER_DEPLOYMENT, ServeTransport
from rllib_agentic.envs.settings import EnvSettings
from rllib_agentic.errors import InfrastructureError
from serve_envs.gateway import make_http_app
from serve_envs.lease import Lease
from serve_envs.replica import EnvReplica

_ROUTER = RequestRouterConfig(request_router_class="serve_envs.routing:SessionRouter")
_MAX_ONGOING = 100_000  # capacity is counted in sessions, by the workers
_LOGGING = LoggingConfig(enable_access_log=False, log_level="WARNING")


@serve.ingress()
class Gateway:
    """The HTTP face of the application.

    Args:
        workers: handle of the worker deployment.
    """

    def __init__(self, workers: DeploymentHandle) -> None:
        self._workers = ServeTransport(workers, "this service")

    def __serve_build_asgi_app__(self) -> FastAPI:
        return make_http_app(self._workers)


def build_app(
    make: Callable[[], Env], settings: EnvSettings, *, http: bool = True, lease: Lease | None = None
) -> Application:
    """The application of one environment.

    Args:
        make: makes a new environment object at each call; must be picklable.
        settings: replicas, slots and limits.
        http: with a gateway in front; without one, only deployment handles reach it, and it starts sooner.
        lease: the application stops itself when this is over; None lets it run until it is stopped.
    """
    workers = serve.deployment(
        EnvReplica,
        name=WORKER_DEPLOYMENT,
        num_replicas=settings.num_replicas,
        ray_actor_options={"num_cpus": settings.cpus_per_replica},
        request_router_config=_ROUTER,
        max_ongoing_requests=_MAX_ONGOING,
        graceful_shutdown_wait_loop_s=0.1,
        logging_config=_LOGGING,
        graceful_shutdown_timeout_s=10.0,
        health_check_period_s=5.0,
        max_constructor_retry_count=2,
    ).bind(make, settings, lease)
    if not http:
        return workers
    return serve.deployment(
        Gateway,
        name="Gateway",
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=_MAX_ONGOING,
        graceful_shutdown_wait_loop_s=0.1,
        logging_config=_LOGGING,
    ).bind(workers)


def deploy(env_name: str, settings: EnvSettings, *, http_port: int | None = None) -> str:
    """Start an environment on Serve in the connected Ray cluster, under a name of its own.

    It lives no longer than who calls this: :func:`undeploy` stops it, and so does the death of the caller's process.

    Args:
        env_name: the registry's name.
        settings: arguments, replicas, slots and limits.
        http_port: also serve ``http://HOST:PORT/APP`` there; None serves deployment handles only. A Serve that
            runs already keeps the proxies it was started with.

    Returns:
        The application's name, for ``EnvSettings.app`` and :func:`undeploy`.

    Raises:
        InputError: an unknown environment or wrong arguments.
        InfrastructureError: ``env_unreachable``: the application did not start; the message has the replica's error.
    """
    make = env_factory(env_name, **settings.args)
    make().close()
    return deploy_app(make, settings, f"{env_name}-{uuid.uuid4().hex[:8]}", http_port=http_port)


def deploy_app(make: Callable[[], Env], settings: EnvSettings, app: str, *, http_port: int | None = None) -> str:
    """Like :func:`deploy`, for an environment that is in no registry, under the given name."""
    start_serve(http_port)
    http = http_port is not None
    try:
        serve.run(
            build_app(make, settings, http=http, lease=Lease.of_caller()),
            name=app,
            route_prefix=f"/{app}" if http else None,
        )
    except RuntimeError as error:
        deployments = serve.status().applications[app].deployments.values()
        reasons = "; ".join(deployment.message for deployment in deployments if deployment.message)
        serve.delete(app)
        raise InfrastructureError("env_unreachable", f"{app}: could not be deployed: {error} {reasons}") from error
    return app


def start_serve(http_port: int | None) -> None:
    """Start Serve in the connected cluster, with HTTP on that port or without any; one that runs stays as it is."""
    if get_current_placement_group() is None:
        _start_serve(http_port)
    else:  # Serve's controller would have to fit into the caller's placement group, a Tune trial's for example
        ray.get(ray.remote(num_cpus=0, scheduling_strategy="DEFAULT")(_start_serve).remote(http_port))


def _start_serve(http_port: int | None) -> None:
    if http_port is None:
        serve.start(proxy_location="Disabled", logging_config=_LOGGING)
        return
    # a proxy that is not ready within 5 s, Serve's default, is killed: too soon on a busy machine
    patient = {"runtime_env": {"env_vars": {"RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60"}}}
    serve.start(
        proxy_location="HeadOnly",
        http_options={"port": http_port},
        logging_config=_LOGGING,
        controller_options=patient,
    )


def undeploy(app: str) -> None:
    """Stop an application: its sessions are closed, its replicas end. Other applications go on."""
    serve.delete(app)
