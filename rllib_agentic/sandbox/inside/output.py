"""One output stream of a program: read without end, kept up to a limit."""

from __future__ import annotations

import os

_CHUNK = 1 << 16


class Output:
    """Keeps the first and the last bytes, and counts all.

    Args:
        descriptor: a pipe's reading end, not blocking.
        limit: the most bytes to keep, half of them from the end.
    """

    def __init__(self, descriptor: int, limit: int) -> None:
        self.descriptor = descriptor
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self.begin()

    def begin(self) -> None:
        """Forget what was kept."""
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    def read(self) -> bool:
        """Take what there is, one chunk at most; False at the end of the stream, True where more may come."""
        try:
            chunk = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return True
        self._keep(chunk)
        return bool(chunk)

    def drain(self) -> None:
        """Take all that has been written so far."""
        while True:
            try:
                chunk = os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                return
            if not chunk:
                return
            self._keep(chunk)

    def kept(self) -> tuple[bytes, bytes]:
        """The first and the last bytes; where all was kept, the second is empty."""
        if self.total <= self._head_limit + self._tail_limit:
            return bytes(self._head + self._tail), b""
        return bytes(self._head), bytes(self._tail[-self._tail_limit :]) if self._tail_limit else b""

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)

    def _keep(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk and self._tail_limit:
            self._tail += chunk
            if len(self._tail) > 2 * self._tail_limit + _CHUNK:
                del self._tail[: -self._tail_limit]
