"""A real MCP server for tests: over standard input and output when it is run, over HTTP from ``http_server``."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("desk")
_notes: list[str] = []


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def note(text: str) -> str:
    """Keep a note, and list all of them."""
    _notes.append(text)
    return ", ".join(_notes)


@server.tool()
def refuse(why: str) -> str:
    """Refuse."""
    raise ToolError(why)


@server.tool()
def picture() -> Image:
    """Draw."""
    return Image(data=b"png", format="png")


@server.tool()
async def rest(seconds: float) -> str:
    """Wait."""
    import asyncio

    await asyncio.sleep(seconds)
    return "rested"


@server.tool()
def crash() -> str:
    """End the server."""
    os._exit(3)


@server.tool()
def identity() -> str:
    """Tell the process and a secret of its environment."""
    return f"{os.getpid()} {os.environ.get('DESK_SECRET', '')}"


@contextmanager
def http_server() -> Iterator[str]:
    """The server over HTTP in a thread; gives its URL."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = server.streamable_http_app()
    uvicorn_server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        uvicorn_server.should_exit = True
        thread.join(timeout=10)
        listening.close()


if __name__ == "__main__":
    server.run("stdio")
