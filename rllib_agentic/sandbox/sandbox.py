"""Running Python that a model wrote: what a sandbox is, and what a run gives back."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self

ErrorKind = Literal["exception", "exit", "timeout", "resource_limit", "killed"]


@dataclass(frozen=True, slots=True)
class Execution:
    """What happened when code ran.

    Attributes:
        stdout: what it printed, exactly; bytes that are not UTF-8 are replacement characters. Of an output beyond the
            limit the first and the last part, and between them a line that gives the full size.
        stderr: likewise.
        exit_code: of the process, negative for a signal, as Python's own: 0 without an error, 1 after an exception.
            In a session, of this call.
        error: None, or what went wrong: ``exception``, ``exit`` (an exit code of its own other than 0), ``timeout``,
            ``resource_limit`` (memory, processes, file size, disk), ``killed`` (by a signal).
        detail: which limit, where one was passed.
        stdout_bytes: how much was printed.
        stderr_bytes: likewise.
        truncated: whether some of the output is missing.
        wall_s: seconds it took.
        variables_lost: in a session, whether the process ended, and the variables with it.
    """

    stdout: str
    stderr: str
    exit_code: int
    error: ErrorKind | None
    detail: str
    stdout_bytes: int
    stderr_bytes: int
    truncated: bool
    wall_s: float
    variables_lost: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended by itself without an error."""
        return self.error is None


class Session(Protocol):
    """Calls that share variables, as cells of a notebook do. For one caller at a time."""

    def run(self, code: str, *, stdin: str = "", timeout_s: float | None = None) -> Execution:
        """Run code; see :meth:`Sandbox.run`."""
        ...

    async def arun(self, code: str, *, stdin: str = "", timeout_s: float | None = None) -> Execution:
        """The same for an event loop."""
        ...

    def close(self) -> None:
        """Forget the variables and end the process. Any number of times."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Sandbox(Protocol):
    """A place for code that nobody has read.

    Each run has a process and an empty folder of its own, nothing on standard input unless given, a fixed list of
    environment variables, and the limits of the sandbox. It sees no other run. When it is over, everything that it
    started is dead. All methods may be called from any thread, and any number of calls may be under way.
    """

    isolation: str

    def run(self, code: str, *, stdin: str = "", timeout_s: float | None = None, seed: int = 0) -> Execution:
        """Run a program from its beginning to its end.

        Args:
            code: Python, as a script: ``__name__`` is ``"__main__"``, only what it prints comes back. It is cleaned of
                fences and the like first (:func:`~rllib_agentic.sandbox.code.clean_code`).
            stdin: what it can read.
            timeout_s: wall seconds, where not the sandbox's.
            seed: of ``random`` and of NumPy's global generator, so that equal code gives equal output.

        Raises:
            InfrastructureError: the sandbox itself failed; says nothing about the code.
        """
        ...

    async def arun(self, code: str, *, stdin: str = "", timeout_s: float | None = None, seed: int = 0) -> Execution:
        """The same for an event loop."""
        ...

    def session(self, *, seed: int = 0) -> Session:
        """A new session; its process starts with its first call."""
        ...

    def close(self) -> None:
        """End everything that runs. Any number of times."""
        ...
