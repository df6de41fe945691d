"""The sandbox: cells of one warm parent, lent out one call or one session at a time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import select
import socket
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from rllib_agentic.errors import InfrastructureError
from rllib_agentic.sandbox.code import clean_code
from rllib_agentic.sandbox.exchange import Answer, ask, ask_async
from rllib_agentic.sandbox.inside import frames
from rllib_agentic.sandbox.launch import IsolationError, WarmParent
from rllib_agentic.sandbox.sandbox import Execution
from rllib_agentic.sandbox.settings import SandboxSettings

logger = logging.getLogger(__name__)
_GRACE_S = 10.0  # beyond a call's own limit, before its cell is given up
_AUTOMATIC = ("namespaces", "landlock")


class _Cell:
    def __init__(self, connection: socket.socket, number: int) -> None:
        self.connection = connection
        self.number = number

    @property
    def alive(self) -> bool:
        """Whether it still listens; an idle cell says nothing, so that whatever comes is its end."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        return not poll.poll(0)


class WarmSandbox:
    r"""A :class:`Sandbox` whose calls are forks of a process that has the interpreter and packages in memory.

    Args:
        settings: see :class:`SandboxSettings`.

    Raises:
        InputError: no isolation works here (the message says why, for each), or a package cannot be loaded.
        InfrastructureError: it does not start.

    Example:
        >>> with WarmSandbox(SandboxSettings(packages=())) as sandbox:
        ...     sandbox.run("print(6 * 7)").stdout
        '42\n'
    """

    def __init__(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.isolation, self._parent = _start(settings)
        self._lock = threading.Lock()
        self._idle: list[_Cell] = []
        self._waiting: deque[Future[_Cell]] = deque()
        self._lent = 0
        self._closed = False

    def run(self, code: str, *, stdin: str = "", timeout_s: float | None = None, seed: int = 0) -> Execution:
        """See :meth:`Sandbox.run`."""
        with self.session(seed=seed) as once:
            return once._ask(code, stdin, timeout_s, persist=False)

    async def arun(self, code: str, *, stdin: str = "", timeout_s: float | None = None, seed: int = 0) -> Execution:
        """See :meth:`Sandbox.arun`."""
        with self.session(seed=seed) as once:
            return await once._ask_async(code, stdin, timeout_s, persist=False)

    def session(self, *, seed: int = 0) -> WarmSession:
        """See :meth:`Sandbox.session`."""
        return WarmSession(self, seed)

    def close(self) -> None:
        """See :meth:`Sandbox.close`."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            future.set_exception(_closed())
        for cell in idle:
            cell.connection.close()
        self._parent.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _borrow(self) -> _Cell | Future[_Cell]:
        """An idle or a new cell; where all are lent, one to wait for. Takes milliseconds at most, as a rule."""
        if idle := self._take_idle():
            return idle
        with self._lock:
            if self._closed:
                raise _closed()
            if self._lent >= self.settings.most_cells:
                self._waiting.append(Future())
                return self._waiting[-1]
            self._lent += 1
        try:
            return self._new_cell()
        except BaseException:
            self._give_back(None)
            raise

    def _take_idle(self) -> _Cell | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                cell = self._idle.pop()
                if cell.alive:
                    self._lent += 1
                    return cell
            cell.connection.close()

    def _new_cell(self) -> _Cell:
        parent = self._parent
        try:
            return _Cell(*parent.cell())
        except InfrastructureError:
            if parent.alive:
                raise
        with self._lock:
            if self._closed:
                raise _closed()
            if self._parent is parent:
                logger.warning("sandbox: the warm parent has died; starting another")
                parent.close()
                self._parent = WarmParent(self.settings, self.isolation)
            parent = self._parent
        return _Cell(*parent.cell())

    def _give_back(self, cell: _Cell | None) -> None:
        """Take a cell back; None for one that is lost."""
        with self._lock:
            self._lent -= 1
            if cell is not None and not self._closed:
                self._idle.append(cell)
                cell = None
            waiter = self._next_waiter()
        if cell is not None:
            cell.connection.close()
        if waiter is not None:
            try:
                waiter.set_result(self._borrow())  # type: ignore[arg-type]  # there is room: never a future
            except BaseException as error:
                waiter.set_exception(error)

    def _next_waiter(self) -> Future[_Cell] | None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if waiter.set_running_or_notify_cancel():
                return waiter
        return None

    def _discard(self, cell: _Cell) -> None:
        cell.connection.close()  # it ends, and what runs in it; and if it does not:
        if self.isolation != "none":
            self._parent.kill(cell.number)
        self._give_back(None)


class WarmSession:
    """A :class:`Session`; holds one cell from its first call to its end."""

    def __init__(self, sandbox: WarmSandbox, seed: int) -> None:
        self._sandbox = sandbox
        self._seed = seed
        self._cell: _Cell | None = None
        self._alive = False

    def run(self, code: str, *, stdin: str = "", timeout_s: float | None = None) -> Execution:
        """See :meth:`Session.run`."""
        return self._ask(code, stdin, timeout_s, persist=True)

    async def arun(self, code: str, *, stdin: str = "", timeout_s: float | None = None) -> Execution:
        """See :meth:`Session.arun`."""
        return await self._ask_async(code, stdin, timeout_s, persist=True)

    def close(self) -> None:
        """See :meth:`Session.close`."""
        cell, self._cell = self._cell, None
        if cell is None:
            return
        if not self._alive:
            self._sandbox._give_back(cell)
            return
        self._alive = False
        try:
            ask(cell.connection, frames.pack({"op": "reset"}), _GRACE_S)
        except (OSError, TimeoutError):
            self._sandbox._discard(cell)
            return
        self._sandbox._give_back(cell)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, code: str, stdin: str, timeout_s: float | None, persist: bool) -> Execution:
        limit = timeout_s or self._sandbox.settings.timeout_s
        request = self._request(code, stdin, limit, persist)
        for may_repeat in (True, False):
            if self._cell is None:
                cell = self._sandbox._borrow()
                self._cell = cell.result() if isinstance(cell, Future) else cell
            with self._giving_up(self._cell, may_repeat):
                return self._execution(ask(self._cell.connection, request, limit + _GRACE_S), persist)
        raise AssertionError("the second try returns or raises")

    async def _borrow_async(self) -> _Cell:
        cell = await asyncio.to_thread(self._sandbox._borrow)
        return await asyncio.wrap_future(cell) if isinstance(cell, Future) else cell

    async def _ask_async(self, code: str, stdin: str, timeout_s: float | None, persist: bool) -> Execution:
        limit = timeout_s or self._sandbox.settings.timeout_s
        request = self._request(code, stdin, limit, persist)
        for may_repeat in (True, False):
            if self._cell is None:
                self._cell = self._sandbox._take_idle() or await self._borrow_async()
            with self._giving_up(self._cell, may_repeat):
                return self._execution(await ask_async(self._cell.connection, request, limit + _GRACE_S), persist)
        raise AssertionError("the second try returns or raises")

    @contextlib.contextmanager
    def _giving_up(self, cell: _Cell, may_repeat: bool) -> Iterator[None]:
        """A cell that failed, or whose caller was cancelled, is not used again.

        Passes over the end of a cell that held no variables where the call may be repeated: programs cannot end their
        cells, so it was the machine (the warm parent was killed, say).
        """
        try:
            yield
        except BaseException as error:
            held, self._cell, self._alive = self._alive, None, False
            self._sandbox._discard(cell)
            if isinstance(error, ConnectionError) and may_repeat and not held:
                return
            if isinstance(error, TimeoutError | OSError | KeyError | ValueError):
                message = f"a cell of the sandbox is lost: {type(error).__name__}: {error}"
                raise InfrastructureError("sandbox_lost", message) from error
            raise

    def _request(self, code: str, stdin: str, timeout_s: float, persist: bool) -> bytes:
        body, text = (part.encode("utf-8", "surrogatepass") for part in (clean_code(code), stdin))
        header = {"op": "run", "persist": persist, "seed": self._seed, "timeout_s": timeout_s, "code": len(body)}
        return frames.pack(header, body + text)

    def _execution(self, answer: Answer, persist: bool) -> Execution:
        header, body = answer
        ends = [0]
        for length in header["lengths"]:
            ends.append(ends[-1] + length)
        parts = [body[start:end] for start, end in itertools.pairwise(ends)]
        self._alive = header["alive"]
        if not header["accepted"]:
            raise ConnectionError(f"the program did not begin: exit code {header['exit']}, {body[-500:]!r}")
        stdout_bytes, stderr_bytes = header["totals"]
        return Execution(
            stdout=_text(parts[0], parts[1], stdout_bytes),
            stderr=_text(parts[2], parts[3], stderr_bytes),
            exit_code=header["exit"],
            error=header["error"],
            detail=header["detail"],
            stdout_bytes=stdout_bytes,
            stderr_bytes=stderr_bytes,
            truncated=stdout_bytes + stderr_bytes > len(body),
            wall_s=header["wall_s"],
            variables_lost=persist and not self._alive,
        )


def _start(settings: SandboxSettings) -> tuple[str, WarmParent]:
    if settings.isolation == "none":
        message = "sandbox: isolation is 'none': code that a model wrote can read, change and send all that you can"
        logger.warning(message)
        warnings.warn(message, stacklevel=3)
    if settings.isolation != "auto":
        return settings.isolation, WarmParent(settings, settings.isolation)
    missing = []
    for isolation in _AUTOMATIC:
        try:
            return isolation, WarmParent(settings, isolation)
        except IsolationError as error:
            missing.append(str(error))
    raise IsolationError(
        "sandbox: nothing on this machine can shut programs in, so none are run. " + "; ".join(missing) + ". "
        "See docs/security.md for what to switch on; isolation: none runs them without protection."
    )


def _text(head: bytes, tail: bytes, total: int) -> str:
    if total <= len(head) + len(tail):
        return (head + tail).decode("utf-8", "replace")
    first, last = head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")
    return f"{first}\n[{total} bytes in all; {total - len(head) - len(tail)} are left out here]\n{last}"


def _closed() -> InfrastructureError:
    return InfrastructureError("sandbox_closed", "the sandbox was closed")
