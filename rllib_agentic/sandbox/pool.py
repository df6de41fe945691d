"""Cells of one warm parent: kept while idle, lent out, made anew where they are lost."""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections import deque
from concurrent.futures import Future

from rllib_agentic.errors import InfrastructureError
from rllib_agentic.sandbox.launch import WarmParent
from rllib_agentic.sandbox.settings import SandboxSettings

logger = logging.getLogger(__name__)


class Cell:
    """One cell, as seen from here.

    Attributes:
        connection: to it; does not block.
        number: under which the warm parent can kill it.
    """

    def __init__(self, connection: socket.socket, number: int) -> None:
        self.connection = connection
        self.number = number

    @property
    def alive(self) -> bool:
        """Whether it still listens; an idle cell says nothing, so that whatever comes is its end."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        return not poll.poll(0)


class CellPool:
    """Lends cells to any thread, at most ``settings.most_cells`` at one time.

    Args:
        settings: of the sandbox.
        isolation: the way, decided.
        parent: a warm parent; replaced when it dies.
    """

    def __init__(self, settings: SandboxSettings, isolation: str, parent: WarmParent) -> None:
        self.isolation = isolation
        self.parent = parent
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[Cell] = []
        self._waiting: deque[Future[Cell]] = deque()
        self._lent = 0
        self._closed = False

    def borrow(self) -> Cell | Future[Cell]:
        """An idle or a new cell; where all are lent, one to wait for. Takes milliseconds, as a rule.

        Raises:
            InfrastructureError: the sandbox is closed, or a cell could not be made.
        """
        if idle := self.take_idle():
            return idle
        with self._lock:
            if self._closed:
                raise _closed()
            if self._lent >= self._settings.most_cells:
                self._waiting.append(Future())
                return self._waiting[-1]
            self._lent += 1
        try:
            return self._new_cell()
        except BaseException:
            self._pass_on(None)
            raise

    def take_idle(self) -> Cell | None:
        """A cell that is ready now, or None."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                cell = self._idle.pop()
                if cell.alive:
                    self._lent += 1
                    return cell
            cell.connection.close()

    def give_back(self, cell: Cell) -> None:
        """Take back a cell in which nothing runs."""
        self._pass_on(cell)

    def discard(self, cell: Cell) -> None:
        """End a cell that was lent, and what runs in it."""
        cell.connection.close()  # it ends; and if it does not:
        if self.isolation != "none":
            self.parent.kill(cell.number)
        self._pass_on(None)

    def close(self) -> None:
        """End everything; whoever waits gets an error. Any number of times."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(_closed())
        for cell in idle:
            cell.connection.close()
        self.parent.close()

    def _new_cell(self) -> Cell:
        parent = self.parent
        try:
            return Cell(*parent.cell())
        except InfrastructureError:
            if parent.alive:
                raise
        with self._lock:
            if self._closed:
                raise _closed()
            if self.parent is parent:
                logger.warning("sandbox: the warm parent has died; starting another")
                parent.close()
                self.parent = WarmParent(self._settings, self.isolation)
            parent = self.parent
        return Cell(*parent.cell())

    def _pass_on(self, cell: Cell | None) -> None:
        """Give a borrower's place to the next who waits, with this cell or (None) with a new one."""
        with self._lock:
            waiter = None if self._closed else self._next_waiter()
            if waiter is None:
                self._lent -= 1
                if cell is not None and not self._closed:
                    self._idle.append(cell)
                    return
        if waiter is None:
            if cell is not None:
                cell.connection.close()
            return
        try:
            waiter.set_result(cell or self._new_cell())
        except BaseException as error:
            waiter.set_exception(error)
            self._pass_on(None)

    def _next_waiter(self) -> Future[Cell] | None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if waiter.set_running_or_notify_cancel():
                return waiter
        return None


def _closed() -> InfrastructureError:
    return InfrastructureError("sandbox_closed", "the sandbox was closed")
