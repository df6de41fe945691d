"""One way to any environment: the client that ``env_config`` asks for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from rllib_agentic.components import parse_settings
from rllib_agentic.envs.env import EnvSchema
from rllib_agentic.envs.faults import EnvFault
from rllib_agentic.envs.hosting import EnvHost
from rllib_agentic.envs.local import LocalClient
from rllib_agentic.envs.registry import env_factory
from rllib_agentic.envs.remote import RemoteClient
from rllib_agentic.envs.replay import ReplayingClient
from rllib_agentic.envs.retries import RetryPolicy
from rllib_agentic.envs.service_metrics import summarize
from rllib_agentic.envs.session import EnvClient
from rllib_agentic.envs.settings import EnvSettings
from rllib_agentic.errors import InfrastructureError, InputError, did_you_mean

if TYPE_CHECKING:  # they import httpx and Ray
    from rllib_agentic.envs.http_transport import HttpTransport
    from rllib_agentic.envs.serve_transport import ServeTransport

_log = logging.getLogger(__name__)


def make_client(env_name: str, env_config: Mapping[str, Any] | EnvSettings) -> EnvClient:
    """The client of one environment; nothing is contacted before its first call.

    Args:
        env_name: the registry's name.
        env_config: see :class:`EnvSettings`. The backend ``serve`` needs ``app``: see ``serve_envs.app.deploy``.

    Raises:
        InputError: an unknown key or environment, wrong arguments, no URL.
    """
    settings = _parse(env_config)
    retries = RetryPolicy(max_retries=settings.max_retries)
    if settings.backend == "local":
        return LocalClient(env_factory(env_name, **settings.args), settings.call_timeout_s, retries)
    client: EnvClient
    if settings.url is not None and (foreign := settings.foreign()) is not None:
        client = foreign.client(settings.url, env_name, retries)
    else:
        transport = _transport(settings)
        if transport is None:
            raise InputError(
                f"env_config: {env_name!r} is not deployed on Ray Serve; deploy it and give its name as 'app', "
                f"or choose backend: local"
            )
        client = RemoteClient(transport, retries)
    return ReplayingClient(client, settings.max_rebuilds) if settings.max_rebuilds else client


def check_env_config(env_name: str, env_config: Mapping[str, Any] | EnvSettings) -> EnvSchema:
    """Find out at the start whether the environment can work: reachable, the right one, with such a split.

    An environment that is still to be deployed is made once in this process.

    Raises:
        InputError: what is wrong, with the URL where the service at a URL does not answer.
    """
    settings = _parse(env_config)
    if settings.backend == "serve" and settings.app is None:
        schema = EnvHost(env_factory(env_name, **settings.args)).schema
    else:
        try:
            with ThreadPoolExecutor(1) as thread:  # a loop of its own: notebooks have one running here
                schema = thread.submit(asyncio.run, _ask_schema(env_name, settings)).result()
        except InfrastructureError as error:
            raise InputError(f"env_config: {error}") from error
    if schema.name != env_name:
        raise InputError(f"env: {env_name!r} was asked for, but {settings.url or settings.app} hosts {schema.name!r}")
    if settings.split not in schema.splits:
        raise InputError(
            f"env_config.split: no split {settings.split!r}. {did_you_mean(settings.split, schema.splits)}"
        )
    return schema


def service_figures(settings: EnvSettings) -> dict[str, float]:
    """What a service did so far, see :func:`summarize`; empty where none of our kind answers."""
    transport = None if settings.backend == "local" or settings.foreign() is not None else _transport(settings)
    if transport is None:
        return {}

    async def ask() -> dict[str, float]:
        try:
            return summarize(await transport.metrics())
        finally:
            await transport.aclose()

    try:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, ask()).result()
    except EnvFault as fault:  # figures never stop a run
        _log.warning("environment %s: no figures: %s", transport.address, fault)
        return {}


def _transport(settings: EnvSettings) -> HttpTransport | ServeTransport | None:
    if settings.url is not None:
        from rllib_agentic.envs.http_transport import HttpTransport

        return HttpTransport(settings.url, direct=settings.direct)
    if settings.app is not None:
        from rllib_agentic.envs.serve_transport import ServeTransport

        return ServeTransport.to_app(settings.app, settings.direct)
    return None


async def _ask_schema(env_name: str, settings: EnvSettings) -> EnvSchema:
    client = make_client(env_name, settings)
    try:
        return await client.schema()
    finally:
        await client.aclose()


def _parse(env_config: Mapping[str, Any] | EnvSettings) -> EnvSettings:
    return env_config if isinstance(env_config, EnvSettings) else parse_settings(EnvSettings, env_config, "env_config")
