"""A request and its answer over a socket that does not block: for threads, and for event loops."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import time
from collections.abc import Generator
from typing import Any

from rllib_agentic.sandbox.inside import frames

Answer = tuple[dict[str, Any], bytes]
_CHUNK = 1 << 18


def ask(connection: socket.socket, request: bytes, timeout_s: float) -> Answer:
    """Send a request and wait for the answer.

    Raises:
        TimeoutError: no whole answer in time.
        ConnectionError: the other side has gone, or speaks nonsense.
    """
    until = time.monotonic() + timeout_s
    left = memoryview(request)
    while left:
        _wait(connection, select.POLLOUT, until)
        left = left[connection.send(left) :]
    parts = _parts()
    wanted = next(parts)
    while True:
        _wait(connection, select.POLLIN, until)
        try:
            wanted = parts.send(connection.recv(min(wanted, _CHUNK)))
        except StopIteration as whole:
            return whole.value


async def ask_async(connection: socket.socket, request: bytes, timeout_s: float) -> Answer:
    """The same for an event loop.

    Raises:
        TimeoutError: as :func:`ask`.
        ConnectionError: as :func:`ask`.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        await loop.sock_sendall(connection, request)
        parts = _parts()
        wanted = next(parts)
        while True:
            chunk = await loop.sock_recv(connection, min(wanted, _CHUNK))
            try:
                wanted = parts.send(chunk)
            except StopIteration as whole:
                return whole.value


def _wait(connection: socket.socket, event: int, until: float) -> None:
    poll = select.poll()
    poll.register(connection, event)
    if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
        raise TimeoutError("no answer in time")


def _parts() -> Generator[int, bytes, Answer]:
    """Takes chunks as they come and yields how many bytes are missing."""
    prefix = yield from _exactly(frames.LENGTHS.size)
    try:
        header_length, body_length = frames.lengths(prefix)
        header = json.loads((yield from _exactly(header_length)))
    except ValueError as error:
        raise ConnectionError(f"an answer that is none: {error}") from error
    body = yield from _exactly(body_length)
    return header, body


def _exactly(count: int) -> Generator[int, bytes, bytes]:
    parts = bytearray()
    while len(parts) < count:
        chunk = yield count - len(parts)
        if not chunk:
            raise ConnectionResetError("the other side has closed the connection")
        parts += chunk
    return bytes(parts)
