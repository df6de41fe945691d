"""A real HTTP server for the time of a test: uvicorn in a thread, on a port of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn


@contextlib.contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an ASGI application; gives its base URL."""
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # asyncio sends at once only on sockets that say TCP
    listener.bind(("127.0.0.1", 0))
    # No logging configuration of its own: that closes all handlers there are, and absl's closes what pytest captures.
    config = uvicorn.Config(app, log_config=None, log_level="warning", lifespan="off", ws="websockets-sansio")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server ended at its start"
            threading.Event().wait(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listener.close()
        assert not thread.is_alive()
