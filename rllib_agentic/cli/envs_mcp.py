"""``rllib envs mcp``: an environment as an MCP server."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from typing import Any

from rllib_agentic.cli.train_options import json_mapping
from rllib_agentic.components import parse_settings
from rllib_agentic.errors import InputError


def add_options(action: Any) -> None:
    """The options of ``envs mcp``."""
    action.add_argument(
        "--port", type=int, help="serve http://127.0.0.1:PORT/mcp; without it standard input and output"
    )
    action.add_argument("--max-sessions", type=int, default=256, help="open tasks at once (default: 256)")


def serve_mcp(given: argparse.Namespace) -> int:
    """Serve until the client goes away, or until Ctrl-C."""
    if find_spec("mcp") is None:
        raise InputError("rllib envs mcp: needs the package mcp; run: pip install 'rllib-agentic[mcp]'")
    import asyncio

    from rllib_agentic.envs.hosting import EnvHost
    from rllib_agentic.envs.registry import env_factory
    from rllib_agentic.envs.settings import EnvSettings
    from serve_envs.mcp_server import make_mcp_server
    from serve_envs.worker import EnvWorker

    spec = {"max_sessions": given.max_sessions, "args": json_mapping("--args", given.args)}
    settings = parse_settings(EnvSettings, spec, "rllib envs mcp")
    with redirect_stdout(sys.stderr):  # whatever an environment prints would break the protocol
        host = EnvHost(env_factory(given.name, **settings.args), settings.call_timeout_s)
    worker = EnvWorker(host, max_sessions=settings.max_sessions, ttl_s=settings.ttl_s)
    server = make_mcp_server(worker, given.name)
    if given.port is None:
        asyncio.run(_serve_stdio(server, worker))
        return 0
    _serve_http(server, given.port)
    return 0


def _serve_http(server: Any, port: int) -> None:
    import signal
    import socket
    import threading

    import uvicorn

    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise InputError(f"--port: cannot listen on port {port}: {error.strerror}; choose another one") from error
    app = server.streamable_http_app(stateless_http=True, json_response=True)
    service = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    thread = threading.Thread(target=service.run, kwargs={"sockets": [listening]})
    thread.start()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    print("Ctrl-C stops it.", file=sys.stderr)
    try:
        signal.sigwait(ends)
    finally:
        service.should_exit = True
        thread.join()
        listening.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)


async def _serve_stdio(server: Any, worker: Any) -> None:
    from mcp.server.stdio import stdio_server

    try:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        await worker.aclose()
