"""Messages over a stream socket: a JSON header and bytes, with the lengths of both in front."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

LENGTHS = struct.Struct("!II")
MOST_BYTES = 1 << 28


def pack(header: dict[str, Any], body: bytes = b"") -> bytes:
    """One message as bytes.

    Example:
        >>> header_length, body_length = LENGTHS.unpack(pack({"op": "run"}, b"print(1)")[: LENGTHS.size])
        >>> header_length, body_length
        (12, 8)
    """
    head = json.dumps(header, separators=(",", ":")).encode()
    return LENGTHS.pack(len(head), len(body)) + head + body


def lengths(prefix: bytes, most: int = MOST_BYTES) -> tuple[int, int]:
    """Lengths of header and body, from the first ``LENGTHS.size`` bytes.

    Raises:
        ValueError: more than ``most`` bytes in all.
    """
    header, body = LENGTHS.unpack(prefix)
    if header + body > most:
        raise ValueError(f"a message of {header + body} bytes, at most {most} are taken")
    return header, body


def receive(connection: socket.socket, most: int = MOST_BYTES) -> tuple[dict[str, Any], bytes] | None:
    """The next message of a blocking socket; None where the other side has closed it.

    Raises:
        ValueError: a message that is too long, or whose header is no JSON.
    """
    prefix = _exactly(connection, LENGTHS.size)
    if prefix is None:
        return None
    header_length, body_length = lengths(prefix, most)
    head = _exactly(connection, header_length)
    body = _exactly(connection, body_length)
    if head is None or body is None:
        return None
    return json.loads(head), body


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        try:
            part = connection.recv(min(count - len(parts), 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
