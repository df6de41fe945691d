"""The error tree, and the boundary between our faults and the policy's.

Two questions decide what an exception becomes:

* Was the input wrong?  :class:`InputError`: the run stops at its start, exit code 2, one clear message.
* Did infrastructure fail?  :class:`InfrastructureError`: retried, then the episode is *invalid*: it is masked,
  counted, and never becomes a reward.

Everything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class AgenticError(Exception):
    """Base of every error that this package raises on purpose."""


class InputError(AgenticError, ValueError):
    """What the user gave cannot work: a config key, a path, a task index, a URL. Commands exit with code 2."""


class InfrastructureError(AgenticError):
    """A service, engine, sandbox or process failed. Not evidence about the policy.

    Args:
        kind: a short stable word for metrics, for example ``"session_lost"`` or ``"env_unreachable"``.
        message: what happened, to whom, and what to do.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type[InfrastructureError], tuple[str, ...]]:
        """Pickle with the constructor's arguments: errors cross process borders."""
        return type(self), (self.kind, str(self))


class TooManyFailuresError(AgenticError):
    """The share of invalid episodes passed the set limit, or every runner died: the run must stop."""


class StaleWeightsError(InfrastructureError):
    """An engine holds another policy version than the one that was asked for."""


class PrefixError(AgenticError):
    """A chat template rewrites earlier turns, so the old context is no prefix of the new one.

    The caller opens a new segment; nothing is ever sliced blindly.
    """


@contextmanager
def boundary(kind: str, *failures: type[BaseException]) -> Iterator[None]:
    """Turn the named foreign exceptions into :class:`InfrastructureError`, keeping the cause.

    Only the listed types are translated: anything else is a bug and passes through.

    Example:
        >>> try:
        ...     with boundary("env_unreachable", ConnectionError):
        ...         raise ConnectionRefusedError("port 1")
        ... except InfrastructureError as error:
        ...     print(error.kind, "|", error)
        env_unreachable | ConnectionRefusedError: port 1
    """
    try:
        yield
    except failures as cause:
        raise InfrastructureError(kind, f"{type(cause).__name__}: {cause}") from cause


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Say which names are known, nearest first; for the tail of an error message.

    Example:
        >>> did_you_mean("max_turn", ["group_size", "max_turns"])
        "Did you mean 'max_turns'? Known: group_size, max_turns."
    """
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return f"{hint}Known: {', '.join(names) or '(none)'}."
