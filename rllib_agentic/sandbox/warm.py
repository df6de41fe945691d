"""The sandbox: cells of one warm parent, lent out one call or one session at a time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

from rllib_agentic.errors import InfrastructureError
from rllib_agentic.sandbox.code import clean_code
from rllib_agentic.sandbox.exchange import Answer, ask, ask_async
from rllib_agentic.sandbox.inside import frames
from rllib_agentic.sandbox.launch import IsolationError, WarmParent
from rllib_agentic.sandbox.pool import Cell, CellPool
from rllib_agentic.sandbox.sandbox import Execution
from rllib_agentic.sandbox.settings import SandboxSettings

T = TypeVar("T")
logger = logging.getLogger(__name__)
_GRACE_S = 10.0  # beyond a call's own limit, before its cell is given up
_AUTOMATIC = ("namespaces", "landlock")


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
        self.isolation, parent = _start(settings)
        self._pool = CellPool(settings, self.isolation, parent)

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
        return WarmSession(self._pool, self.settings, seed)

    def close(self) -> None:
        """See :meth:`Sandbox.close`."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class WarmSession:
    """A :class:`Session`; holds one cell from its first call to its end."""

    def __init__(self, pool: CellPool, settings: SandboxSettings, seed: int) -> None:
        self._pool = pool
        self._timeout_s = settings.timeout_s
        self._seed = seed
        self._cell: Cell | None = None
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
            self._pool.give_back(cell)
            return
        self._alive = False
        try:
            ask(cell.connection, frames.pack({"op": "reset"}), _GRACE_S)
        except (OSError, TimeoutError):
            self._pool.discard(cell)
            return
        self._pool.give_back(cell)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, code: str, stdin: str, timeout_s: float | None, persist: bool) -> Execution:
        limit = timeout_s or self._timeout_s
        request = self._request(code, stdin, limit, persist)
        for may_repeat in (True, False):
            if self._cell is None:
                cell = self._pool.borrow()
                self._cell = cell.result() if isinstance(cell, Future) else cell
            with self._giving_up(self._cell, may_repeat):
                return self._execution(ask(self._cell.connection, request, limit + _GRACE_S), persist)
        raise AssertionError("the second try returns or raises")

    async def _borrow_async(self) -> Cell:
        borrowing = asyncio.get_running_loop().run_in_executor(None, self._pool.borrow)
        cell = await self._unless_cancelled(borrowing)
        return await self._unless_cancelled(asyncio.wrap_future(cell)) if isinstance(cell, Future) else cell

    async def _unless_cancelled(self, coming: asyncio.Future[T]) -> T:
        """What is coming; where nobody waits for it any more, the cell goes back when it is there."""

        def give_back(done: asyncio.Future[T] | Future[T]) -> None:
            if done.cancelled() or done.exception() is not None:
                return
            cell = done.result()
            if isinstance(cell, Future):
                cell.add_done_callback(give_back)
            elif isinstance(cell, Cell):
                self._pool.give_back(cell)

        try:
            return await asyncio.shield(coming)
        except asyncio.CancelledError:
            coming.add_done_callback(give_back)
            raise

    async def _ask_async(self, code: str, stdin: str, timeout_s: float | None, persist: bool) -> Execution:
        limit = timeout_s or self._timeout_s
        request = self._request(code, stdin, limit, persist)
        for may_repeat in (True, False):
            if self._cell is None:
                self._cell = self._pool.take_idle() or await self._borrow_async()
            with self._giving_up(self._cell, may_repeat):
                return self._execution(await ask_async(self._cell.connection, request, limit + _GRACE_S), persist)
        raise AssertionError("the second try returns or raises")

    @contextlib.contextmanager
    def _giving_up(self, cell: Cell, may_repeat: bool) -> Iterator[None]:
        """A cell that failed, or whose caller was cancelled, is not used again.

        Passes over the end of a cell that held no variables where the call may be repeated: programs cannot end their
        cells, so it was the machine (the warm parent was killed, say).
        """
        try:
            yield
        except BaseException as error:
            held, self._cell, self._alive = self._alive, None, False
            self._pool.discard(cell)
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
